package server

func adminRoutes() []route { return nil }
