// A CUDA driver in host memory, as much of it as a bundle and cuda-bindings need. Device memory is the host's, and a
// launch of any kernel computes D = A·Bᵀ for parameters A, B, D, whose sizes tell the problem. FAKE_GPU names what is
// to go wrong.
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int lost = 0;  // an error that stays, as that of an illegal access does
static int launches = 0;
static int told(const char *what) { const char *said = getenv("FAKE_GPU"); return said && strstr(said, what); }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

int cuInit(unsigned flags) { return told("no device") ? 100 : 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Fake GPU"); return 0; }
int cuDeviceGetPCIBusId(char *id, int length, int device) { snprintf(id, length, "0000:01:00.0"); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : 1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)1; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxSynchronize(void) {
  while (launches && told("hang")) sleep(1);
  return lost;
}

static struct { void *at; size_t bytes; } held[256];  // what cudart.c allocated
static int holding = 0;
void fakeHold(void *at, size_t bytes) { held[holding].at = at, held[holding].bytes = bytes, holding = (holding + 1) % 256; }
static double elements(const void *at) {
  for (int i = 255; i >= 0; i--)
    if (held[i].at == at) return held[i].bytes / 2.0;
  abort();
}

int cuMemAlloc_v2(uint64_t *at, size_t bytes) { *at = (uint64_t)malloc(bytes); return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { memcpy((void *)to, from, bytes); return lost; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { memcpy(to, (void *)from, bytes); return lost; }
int cuMemsetD16_v2(uint64_t at, unsigned short value, size_t count) {
  for (size_t i = 0; i < count; i++) ((uint16_t *)at)[i] = value;
  return lost;
}
int cuMemsetD8Async(uint64_t at, unsigned char value, size_t count, void *stream) { return lost; }

int cuEventCreate(void **event, unsigned flags) { *event = malloc(sizeof(double)); return 0; }
int cuEventRecord(void *event, void *stream) { *(double *)event = now(); return lost; }
int cuEventSynchronize(void *event) { return lost; }
int cuEventElapsedTime_v2(float *ms, void *from, void *to) { *ms = 1e3 * (*(double *)to - *(double *)from); return lost; }

int cuGetErrorName(int error, const char **name) {
  *name = error == 100 ? "CUDA_ERROR_NO_DEVICE" : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : error == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" : "CUDA_ERROR";
  return 0;
}
int cuGetErrorString(int error, const char **text) {
  *text = error == 100 ? "no CUDA-capable device is detected" : error == 700 ? "an illegal memory access was encountered" : "too many resources requested for launch";
  return 0;
}

int cuModuleLoadData(void **module, const void *image) { *module = malloc(1); return memcmp(image, "\177ELF", 4) ? 200 : 0; }
int cuModuleUnload(void *module) { return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = malloc(1); return 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int cuTensorMapEncodeTiled(void) { return 0; }

int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra) {
  const _Float16 *a = *(void **)parameters[0], *b = *(void **)parameters[1];
  _Float16 *d = *(void **)parameters[2];
  const double mk = elements(a), nk = elements(b), mn = elements(d);
  const int m = lround(sqrt(mk * mn / nk)), n = lround(mn / m), k = lround(mk / m);
  launches++;
  if (told("abort")) abort();
  if (told("refused")) return 701;
  if (told("illegal")) return lost = 700, 0;
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int l = 0; l < k; l++) sum += (float)a[i * k + l] * (float)b[j * k + l];
      d[i * n + j] = (_Float16)sum;
    }
  if (told("wrong")) d[5] += (_Float16)64;
  if (told("unwritten")) ((uint16_t *)d)[7] = 0x7e00;
  if (told("unsteady") && d[9] < 100) ((uint16_t *)d)[9] ^= launches % 2;  // within the tolerance, yet not the same
  return 0;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
  char second[128];
  void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  snprintf(second, sizeof second, "%s_v2", name);
  if (!(*function = dlsym(self, name))) *function = dlsym(self, second);
  if (status) *status = *function ? 0 : 1;
  return *function ? 0 : 500;
}
