"""Media in: bytes to slices on the millisecond axis, at the fidelity of a rung."""
