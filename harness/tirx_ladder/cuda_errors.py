"""What a CUDA compiler's log says, as one line that names the generated line."""

from __future__ import annotations

import re


class CudaError(Exception):
    """The CUDA compiler refuses a source. message is its first error, line the generated line that it names."""

    def __init__(self, message: str, line: str = "", number: int | None = None, function: str = "", more: int = 0):
        self.message, self.line, self.number, self.function, self.more = message, line, number, function, more
        text = message
        if line:
            text += f"; generated CUDA, line {number}: {line}"
        if function:
            text += f" (in {function})"
        if more:
            text += f"; and {more} more error{'s' if more > 1 else ''}"
        super().__init__(text)


_ERROR = re.compile(
    r"^(?P<file>[^\s(]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #\S+)?: (?P<text>.+)$", re.MULTILINE
)
_PTXAS = re.compile(r"^ptxas[^\n]*?(?:error|fatal)\s*: (?P<text>.+)$", re.MULTILINE)
_FUNCTION = re.compile(r"\b(\w+)\s*\([^;]*\)\s*\{?\s*$")


def explain(log: str, compiled: str, source: str) -> CudaError:
    """The first error of a compiler's log, at its line of the source that was given to TVM.

    compiled is the source as NVRTC saw it: TVM's additions, then the source. ptxas names no line of it; if it
    quotes a piece of PTX, the first line that holds this piece is taken.
    """
    found = list(_ERROR.finditer(log))
    if not found:
        return _explain_ptxas(log, source)
    first = found[0]
    lines, number = compiled.splitlines(), int(first["line"])
    if first["file"] != "tvm_kernels.cu" or number > len(lines):
        return CudaError(f"CUDA compiler: {first['text']}, at {first['file']}:{number}", more=len(found) - 1)
    line, function = lines[number - 1].strip(), _function(lines[:number])
    own = number - (len(lines) - len(source.splitlines()))  # lines dropped by TVM come before the first function
    return CudaError(f"CUDA compiler: {first['text']}", line, max(own, 1), function, len(found) - 1)


def _explain_ptxas(log: str, source: str) -> CudaError:
    said = _PTXAS.findall(log)
    if not said:
        return CudaError(f"CUDA compiler: {' '.join(log.split())[:300]}")
    message, lines = f"CUDA compiler, from PTX: {said[0].strip()}", source.splitlines()
    for piece in re.findall(r"'([^']{3,})'", said[0]):
        for number, line in enumerate(lines, 1):
            if piece in line and '"' in line:  # inline PTX is a text
                return CudaError(message, line.strip(), number, _function(lines[:number]), len(said) - 1)
    return CudaError(message, more=len(said) - 1)


def _function(lines: list[str]) -> str:
    """The function that the last of these lines is in."""
    for text in reversed(lines):
        head = re.sub(r"__launch_bounds__\([^)]*\)", "", text)
        if head[:1].strip() and not head.startswith(("#", "}", "/")) and (match := _FUNCTION.search(head)):
            return match[1]
    return ""
