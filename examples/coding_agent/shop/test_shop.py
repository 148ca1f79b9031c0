from prices import total
from stock import missing

assert total([10.0, 30.0], discount=0.25) == 30.0, "the discount is a share"
assert missing({"apples": 3, "pears": 2}, {"apples": 3}) == ["pears"], "exactly enough is enough"
print("all is well")
