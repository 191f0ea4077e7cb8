package journal

import (
	"hash/maphash"
	"slices"
)

// explore visits all that can follow.
func (s *simulation) explore(w world) {
	h := maphash.Comparable(simSeed, w)
	if _, ok := s.seen[h]; ok || s.failed != "" {
		return
	}
	s.seen[h] = struct{}{}
	s.check(&w)
	step := func(p simStep, next world, first func(*world)) {
		s.path = append(s.path, p)
		first(&next)
		s.explore(next)
		s.path = s.path[:len(s.path)-1]
	}
	for i := range w.actors {
		n := s.nodes[w.actors[i].node]
		if n.request.op == opIdle {
			continue
		}
		for _, fault := range []bool{false, true} {
			if fault && w.faults == 0 {
				break
			}
			for _, late := range []bool{false, true} {
				next := w
				a, ok := s.answer(&next, n.request, fault, late)
				if !ok {
					continue
				}
				step(simStep{i, n.request, a}, next, func(next *world) { s.advance(next, i, n, a) })
			}
		}
	}
	step(simStep{who: 4}, w, func(next *world) { s.tick(next) })
	for i, l := range w.late {
		if l.entry > 0 {
			step(simStep{5, simRequest{opPut, l.number, l.entry}, simAnswer{}}, w, func(next *world) {
				next.late[i].number, next.late[i].entry = 0, 0
				s.put(next, l.number, l.entry)
			})
		}
	}
}

// tick lets time go by.
func (s *simulation) tick(w *world) {
	for i := range w.slots {
		w.slots[i].made = stale(w.slots[i].made)
	}
	for i := range w.files {
		w.files[i].made = older(w.files[i].made)
	}
	for i := range w.actors {
		w.actors[i].node = s.age(w.actors[i].node)
	}
}

// age is an actor after a step of the clock.
func (s *simulation) age(node uint32) uint32 {
	n := s.nodes[node]
	if n.aged > 0 {
		return n.aged - 1
	}
	st := n.state
	st.seen = 0
	id := s.root(st)
	for _, a := range n.answers {
		a.made = stale(a.made)
		for i := range a.files {
			a.files[i].made = older(a.files[i].made)
		}
		id = s.follow(id, a)
	}
	n.aged = id + 1
	return id
}

// follow is where an actor is after another answer.
func (s *simulation) follow(node uint32, a simAnswer) uint32 {
	n := s.nodes[node]
	id, ok := n.next[a]
	if !ok {
		id = s.node(n.state, append(slices.Clone(n.answers), a))
		n.next[a] = id
	}
	return id
}

// answer carries out a request. With a fault its answer is lost; late means that the put comes later.
func (s *simulation) answer(w *world, r simRequest, fault, late bool) (a simAnswer, ok bool) {
	if late && (!fault || r.op != opPut) || fault && r.op == opStamp {
		return a, false
	}
	if fault {
		w.faults--
		a.err = 1
	}
	if late {
		i := slices.IndexFunc(w.late[:], func(l struct{ number, entry uint8 }) bool { return l.entry == 0 })
		if i < 0 {
			return a, false
		}
		w.late[i].number, w.late[i].entry = r.number, r.entry
		return a, true
	}
	switch r.op {
	case opPut:
		if taken := !s.put(w, r.number, r.entry); taken && !fault {
			a.err = 3
		}
	case opStamp:
		a.made = simNow
	case opGet:
		slot := w.slots[r.number]
		switch {
		case fault:
		case slot.entry == 0:
			a.err = 2
		default:
			a.entry, a.made = slot.entry, slot.made
		}
	case opList:
		for n, slot := range w.slots {
			if slot.entry > 0 && !fault {
				a.bits |= 1 << n
			}
		}
	case opFiles:
		if !fault {
			a.files = w.files
		}
	case opCheckpoint:
		if w.truth[r.number] != r.entry {
			s.fail("a checkpoint of entry %d is not of the log", r.number)
		}
		i := slices.IndexFunc(w.files[:], func(f simFile) bool { return f.number == 0 })
		if i < 0 {
			return a, false
		}
		if slices.ContainsFunc(w.files[:], func(f simFile) bool { return f.number == r.number }) {
			return a, true
		}
		w.files[i] = simFile{r.number, r.entry, simNow}
		slices.SortFunc(w.files[:], func(a, b simFile) int { return int(b.number) - int(a.number) })
	case opDelete:
		if r.number == w.newest {
			s.fail("the newest entry, %d, is deleted", r.number)
		}
		w.slots[r.number] = simSlot{}
		s.reached.cut++
	case opDrop:
		for i := range w.files {
			if w.files[i].number == r.number {
				w.files[i] = simFile{}
			}
		}
		slices.SortFunc(w.files[:], func(a, b simFile) int { return int(b.number) - int(a.number) })
	}
	return a, true
}

// put carries out a put in the store.
func (s *simulation) put(w *world, number, entry uint8) (made bool) {
	if w.slots[number].entry > 0 {
		return false
	}
	w.slots[number] = simSlot{entry, simNow}
	switch {
	case number <= w.newest:
		s.reached.stale++
	case number > w.newest+1 || s.entries[entry].parent != w.truth[w.newest]:
		s.fail("entry %d does not follow the log", number)
	case w.dead>>entry&1 != 0:
		s.fail("entry %d was said not to be in the log, and is", number)
	default:
		w.truth[number] = entry
		w.newest = number
	}
	return true
}

// advance gives an actor an answer.
func (s *simulation) advance(w *world, i int, n *simNode, a simAnswer) {
	id := s.follow(w.actors[i].node, a)
	out := s.nodes[id].ended
	if out == nil {
		w.actors[i].node = id
		s.hurry(w, i)
		return
	}
	if out.failed != "" {
		s.fail("%s: %s", simNames[i], out.failed)
		return
	}
	at := n.state.number
	for _, e := range out.used {
		if at++; w.truth[at] != e {
			s.fail("%s reads an entry %d that is not in the log", simNames[i], at)
		}
	}
	if out.read && uint32(at) < w.actors[i].newest {
		s.fail("%s reads up to entry %d, and there were %d before", simNames[i], at, w.actors[i].newest)
	}
	if e := out.acked; e > 0 && w.truth[s.entries[e].number] != e {
		s.fail("%s has acknowledged an entry %d that is not in the log", simNames[i], s.entries[e].number)
	}
	if e := out.dead; e > 0 {
		if w.truth[s.entries[e].number] == e {
			s.fail("%s says that entry %d is not in the log", simNames[i], s.entries[e].number)
		}
		w.dead |= 1 << e
	}
	w.actors[i].node = s.root(out.state)
	w.actors[i].newest = uint32(w.newest)
	s.hurry(w, i)
}

// hurry gives an actor the answers that it does not wait for.
func (s *simulation) hurry(w *world, i int) {
	n := s.nodes[w.actors[i].node]
	if s.failed != "" || !n.hurries(s.o.coarse) {
		return
	}
	a, _ := s.answer(w, n.request, false, false)
	s.path = append(s.path, simStep{i, n.request, a})
	s.advance(w, i, n, a)
	if s.failed == "" {
		s.path = s.path[:len(s.path)-1]
	}
}

// hurries reports whether a request is answered in the same step as the one before it. The
// steps of the searcher show that a read gives the log as it was at one moment. So the read of another actor may be
// that one moment, at any time, and so may the reads of the collector before its writes. If coarse, only the
// searcher and requests that change the store take steps.
func (n *simNode) hurries(coarse bool) bool {
	reads := n.request.op == opGet || n.request.op == opList && len(n.answers) > 0 || n.request.op == opStamp
	switch n.state.kind {
	case searcher:
		return false
	case collector:
		return reads
	}
	return n.state.mode != modeAppend && len(n.answers) > 0 || coarse && reads
}

// check checks the invariant of every state: each entry of the log is there, or in a checkpoint.
func (s *simulation) check(w *world) {
	kept := w.files[0].number // the newest
	for n := kept + 1; n <= w.newest; n++ {
		if w.slots[n].entry != w.truth[n] {
			s.fail("entry %d is neither in the log nor in a checkpoint", n)
		}
	}
	if w.newest > 0 && w.slots[w.newest].entry == 0 {
		s.fail("the newest entry is gone")
	}
}
