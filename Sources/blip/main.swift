print("blip")
