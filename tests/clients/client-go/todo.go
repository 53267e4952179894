package main
func informersAcrossRestarts(s *story) {}
func election(s *story) {}
func apply(s *story) {}
func dynamicClient(s *story) {}
func mapper(s *story) {}
