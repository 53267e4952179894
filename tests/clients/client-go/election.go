package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	leaseDuration = 6 * time.Second
	renewDeadline = 5 * time.Second
	retryPeriod   = 100 * time.Millisecond
)

// election: candidates for one Lease. In each round the leader goes, by letting go of the lease
// or, in some rounds, without a word, and the other one follows.
func election(s *story) {
	const rounds = 8
	floor := &office{elected: make(chan *candidate, 2), lost: make(chan *candidate, 2)}
	waiting := s.stands(floor, 0)
	leader := s.follows(floor)
	s.so(leader == waiting, "the only candidate becomes leader", leader)
	waiting = s.stands(floor, 1)

	for round := 1; round <= rounds; round++ {
		// Time in which the other one must not become leader.
		time.Sleep(10 * retryPeriod)
		s.so(len(floor.elected) == 0 && len(floor.lost) == 0, fmt.Sprintf("round %d: %s leads and %s waits", round, leader.name, waiting.name), floor)
		s.holds(leader.name)

		silently := round%4 == 0
		went := time.Now()
		if silently {
			// It goes on believing in nothing, and writes nothing: as if its power were cut.
			leader.dead.Store(true)
		}
		floor.leave(leader)
		next := s.follows(floor)
		took := time.Since(went)
		s.so(next == waiting, fmt.Sprintf("round %d: %s follows", round, waiting.name), next.name)
		if silently {
			s.so(took > leaseDuration-2*time.Second, "not before the lease that nobody let go of ran out", took)
		} else {
			s.so(took < leaseDuration, "without waiting for the lease that was let go of to run out", took)
		}
		lease := s.holds(next.name)
		s.same(round, *lease.Spec.LeaseTransitions, "the Lease has counted each change of leader")
		leader, waiting = next, s.stands(floor, round+1)
	}
	s.same(0, floor.overlaps.Load(), "there were never two leaders at once")

	waiting.stop()
	<-waiting.over
	floor.leave(leader)
	<-leader.over
	s.holds("")
}

// office counts who is in it.
type office struct {
	leaders, overlaps atomic.Int32
	elected, lost     chan *candidate
}

func (o *office) leave(leader *candidate) {
	// Before the lease is let go of: from then on another one may come.
	o.leaders.Add(-1)
	leader.left.Store(true)
	// Between two renewals: one that is cut short may still be written, and the elector, which does
	// not know of it, then fails to let go.
	leader.writing.Lock()
	defer leader.writing.Unlock()
	leader.stop()
}

type candidate struct {
	name       string
	stop       context.CancelFunc
	left, dead atomic.Bool
	writing    sync.Mutex
	over       chan struct{}
}

func (s *story) stands(floor *office, number int) *candidate {
	ctx, stop := context.WithCancel(s.ctx)
	// Also when the story ends early.
	s.later(func(context.Context) { stop() })
	c := &candidate{name: fmt.Sprintf("candidate-%d", number), stop: stop, over: make(chan struct{})}
	lock := &mortal{c, &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "office", Namespace: s.namespace},
		Client:     s.typed.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: c.name},
	}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true, Name: "office",
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				if floor.leaders.Add(1) > 1 {
					floor.overlaps.Add(1)
				}
				floor.elected <- c
			},
			OnStoppedLeading: func() {
				if !c.left.Load() && ctx.Err() == nil {
					floor.lost <- c
				}
			},
		},
	})
	s.must(err, "stand for election")
	go func() {
		defer close(c.over)
		elector.Run(ctx)
	}()
	return c
}

// follows waits for the next leader.
func (s *story) follows(floor *office) *candidate {
	select {
	case next := <-floor.elected:
		return next
	case lost := <-floor.lost:
		panic(notSo(lost.name + " keeps the lease for as long as it renews it"))
	case <-time.After(90 * time.Second):
		panic(notSo("somebody follows within a minute and a half"))
	}
}
