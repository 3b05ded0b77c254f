"""The Hopper GEMM ladder."""

from . import suite

globals().update(suite.tracks("hopper_gemm"))
