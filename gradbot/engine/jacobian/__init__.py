"""Jacobians, numerical and analytical, one method a file; each gives an estimate and a bound of its error.

A Jacobian is a real matrix, outputs down and inputs across, float64 on the CPU: all outputs' elements one after the
other, all inputs' elements likewise.
"""
