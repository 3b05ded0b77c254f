// What libtvm_runtime_cuda.so takes of the CUDA runtime, over the driver beside it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int cuCtxSynchronize(void);
void fakeHold(void *, size_t);
int cuDeviceGetAttribute(int *, int, int);

int cudaSetDevice(int device) { return 0; }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) { return cuDeviceGetAttribute(value, attribute, device); }
int cudaGetDeviceProperties(void *properties, int device) { return 1; }
int cudaMalloc(void **at, size_t bytes) {
  *at = aligned_alloc(256, (bytes + 255) / 256 * 256);
  fakeHold(*at, bytes);
  return 0;
}
int cudaFree(void *at) { free(at); return 0; }
int cudaMallocHost(void **at, size_t bytes) { return cudaMalloc(at, bytes); }
int cudaFreeHost(void *at) { return cudaFree(at); }
int cudaMemGetInfo(size_t *left, size_t *all) { *left = *all = 1 << 30; return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) { memcpy(to, from, bytes); return 0; }
int cudaMemcpyPeerAsync(void) { return 1; }
int cudaGetLastError(void) { return 0; }
int cudaPeekAtLastError(void) { return 0; }
const char *cudaGetErrorName(int error) { return "cudaErrorOther"; }
const char *cudaGetErrorString(int error) { return "other"; }
int cudaEventCreate(void **event) { return 1; }
int cudaEventDestroy(void *event) { return 1; }
int cudaEventElapsedTime(float *ms, void *from, void *to) { return 1; }
int cudaEventRecord(void *event, void *stream) { return 1; }
int cudaEventSynchronize(void *event) { return 1; }
int cudaStreamCreate(void **stream) { *stream = 0; return 0; }
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { *stream = 0; return 0; }
int cudaStreamDestroy(void *stream) { return 0; }
int cudaStreamSynchronize(void *stream) { return cuCtxSynchronize(); }
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) { return 0; }
int cudaStreamBeginCapture(void *stream, int mode) { return 1; }
int cudaStreamEndCapture(void *stream, void **graph) { return 1; }
int cudaGraphDestroy(void *graph) { return 1; }
int cudaGraphExecDestroy(void *graph) { return 1; }
int cudaGraphInstantiate(void) { return 1; }
int cudaGraphLaunch(void) { return 1; }
