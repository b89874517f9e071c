"""Where specrag meets people and machines: command line, settings, node, doctor."""
