"""ONNX models: their ops, FLOPs and sizes."""
