"""Events as Spark reads them, by entity and by range of offsets."""
