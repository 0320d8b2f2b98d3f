"""pipeline_iteration: one training iteration through a pipeline of stages."""
