"""What any placer should beat: one device, orders, chance; and plans of experts."""
