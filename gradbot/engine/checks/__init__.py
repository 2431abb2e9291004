"""One property of a target a file; `registry` has them all."""
