"""A second version of a pipeline: forked, compared with the first, promoted as one."""
