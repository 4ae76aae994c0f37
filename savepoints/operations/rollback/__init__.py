"""Going back: rollback, reset, restore to a point, and the change of generation behind them."""
