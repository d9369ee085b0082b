"""Speed and memory, side by side with peers. `make bench` runs all of them; each also runs by itself."""
