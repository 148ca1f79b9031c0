"""RAP, the Reactive Agent Protocol: the runtime's side of it, and ``server`` for those who write tools."""
