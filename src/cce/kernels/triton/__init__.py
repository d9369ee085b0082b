"""`gather_sum` on a GPU, in Triton."""
