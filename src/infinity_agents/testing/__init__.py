"""What tests need, shipped: doubles, a fault injector, and one contract suite for each port."""
