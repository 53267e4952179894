package main
func apply(s *story) {}
func dynamicClient(s *story) {}
func mapper(s *story) {}
