"""One technology each. An adapter fills a port, translates the technology's errors, and knows no other adapter."""
