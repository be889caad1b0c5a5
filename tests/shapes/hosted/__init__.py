"""An engine without a model that runs in a host process."""
