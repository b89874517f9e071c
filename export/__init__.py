"""The heavy half: Hugging Face models to bundles, the gate, training, calibration."""
