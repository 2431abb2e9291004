"""A small package of custom functions and ops to try gradbot on: some right, most wrong on purpose, each in one way.

`gradbot check gradbot.demo` checks them all. Each file shows one thing; its docstring says what is wrong and why it
is easily overlooked. The inputs stand in `cases.py`, as they would in any package.
"""
