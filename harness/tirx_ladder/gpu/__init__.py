"""On a real GPU: bundles judged and timed in processes of their own, without compiler or simulator."""
