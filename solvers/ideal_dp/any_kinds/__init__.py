"""Any kinds of devices, replicas and servers."""
