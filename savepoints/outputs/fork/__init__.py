"""Outputs of forks: copies of their own, and content taken over."""
