package main

import (
	"context"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// mortal is a lock whose candidate can die: the dead write nothing, not even that they let go.
type mortal struct {
	*candidate
	resourcelock.Interface
}

var errDead = errors.New("the dead write nothing")

func (m *mortal) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Interface.Create(ctx, record)
}

func (m *mortal) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.dead.Load() {
		return errDead
	}
	return m.Interface.Update(ctx, record)
}

// holds claims who holds the Lease.
func (s *story) holds(name string) *coordinationv1.Lease {
	lease, err := s.typed.CoordinationV1().Leases(s.namespace).Get(s.ctx, "office", metav1.GetOptions{})
	s.must(err, "read the Lease")
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	if name == "" {
		s.same(name, holder, "nobody holds the Lease")
	} else {
		s.same(name, holder, name+" holds the Lease")
	}
	return lease
}
