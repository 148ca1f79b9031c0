def missing(wanted: dict[str, int], stock: dict[str, int]) -> list[str]:
    """Return what there is too little of, by name."""
    return sorted(name for name, count in wanted.items() if stock.get(name, 0) <= count)
