def total(prices: list[float], discount: float = 0.0) -> float:
    """Return what all of it costs, less the discount, a share from 0 to 1."""
    return sum(prices) - discount
