"""Parts of `scripts/gpu-check`; its head says what it does. Plain Python, no packages."""
