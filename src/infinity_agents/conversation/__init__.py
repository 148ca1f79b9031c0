"""What a conversation is: pure values and pure functions. No I/O, no clock, no JSON."""
