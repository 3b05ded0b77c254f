"""The Blackwell GEMM ladder."""

from . import suite

globals().update(suite.tracks("blackwell_gemm"))
