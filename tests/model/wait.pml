/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for an object: every acquire ends, and ends in an error only if a read really failed (rules R1, R6, R7, R8, R9).
 *
 * Two clients; one object (manager evicts at will), or two objects that take turns in one slab (-DOBJECTS=2). Nobody in
 * this model has a time slice: a client that sleeps is woken or sleeps for ever, which spin reports as an invalid end
 * state. Client 1 may give up at any sleep, and be killed at any step; client 0 never does and must always get through.
 * The manager may be killed at any step and is followed by one that adopts (designed; not in this release).
 *
 * good   -                    one manager death, one client death, one failed read
 * good   -DMOVES=1            and one read that is given up: its object is ABSENT again, the generation as it was
 * good   -DDEATHS=2           two manager deaths, so that one may fall into adoption
 * good   -DROUNDS=2 -DDEATHS=0 -DEVICTIONS=2   each client asks twice
 * good   -DOBJECTS=2          two objects and one slab
 * mutant M_NOREPOST stuck     a wait whose first look was EVICTING does not post when it then sees ABSENT
 * mutant M_NOCOMPARE stuck    sleep without comparing the word that was judged
 * mutant M_NOWAKEREADY stuck  no wake after LOADING -> READY
 * mutant M_NOWAKEFAIL stuck   no wake after LOADING -> ABSENT
 * mutant M_NOWAKEREVERT stuck no wake after EVICTING -> READY
 * mutant M_NOWAKEABSENT stuck no wake after EVICTING -> ABSENT
 * mutant M_WAKEFIRST stuck    the wake comes before the store
 * mutant M_SAMEGENERATION stuck  a failure leaves the generation as it was
 * mutant M_NOGENERATION stuck the waiter does not compare generations
 * mutant M_FIRSTGENERATION assert the waiter compares with a generation seen before its lease was up
 * mutant M_MOVENOQUEUE stuck -DMOVES=1   what is given up is not demanded anew
 * mutant M_MOVEGENERATION assert -DMOVES=1   giving up moves the generation, as a failure does
 * mutant M_DROPDEAD stuck     the end of a session drops its queued demands, which others joined
 * mutant M_DROPSTARTER stuck  a queued demand is dropped when its starter gave up, whoever else holds a lease
 * mutant M_ADOPTNOWAKE stuck  adoption does not wake every word
 * mutant M_ADOPTNOWANT stuck  adoption does not look for wants in the ledgers
 * mutant M_ADOPTWANTFIRST stuck  it looks for wants before the words are put in order
 * mutant M_ADOPTGENERATION assert adoption moves the generation
 */
#ifndef OBJECTS
#define OBJECTS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef EVICTIONS
#define EVICTIONS 1             /* at will; with two objects each demand evicts the other object */
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef MOVES
#define MOVES 0
#endif
#define FAILURES 1
#define KILLS 1
#define GIVEUPS 1
#define GENERATIONS 8           /* more than can be used up here; 2^24 in the code */
#define LAST (OBJECTS - 1)

mtype = { ABSENT, LOADING, READY, EVICTING };

/* Shared memory. State and generation are one word: always read and written together. */
mtype state[OBJECTS] = ABSENT;
byte generation[OBJECTS];
byte leases[2];                 /* leases[c], bit o: the ledger of client c */
bool slot[2];                   /* channel of client c: SUBMITTED, for object wants[c] */
byte wants[2];

bool asleep[2];                 /* in the kernel's futex queue of the word of wants[c] */
bool alive[2] = true, ended[2];
byte failed[OBJECTS];           /* reads that really failed: for the claim */
bool manager_dies;
byte deaths, kills, giveups, failures, evictions, moves;

#define LEASED_BY(c, o) (!ended[c] && (leases[c] & (1 << (o))))
#define LEASED(o) (LEASED_BY(0, o) || LEASED_BY(1, o))
#define WAKE(o) atomic { \
	if :: wants[0] == (o) -> asleep[0] = false :: else fi; \
	if :: wants[1] == (o) -> asleep[1] = false :: else fi }
#define RAISE(c, o) leases[c] = leases[c] | (1 << (o))
#define LOWER(c, o) leases[c] = leases[c] & ~(1 << (o))

/* client/acquire.c cnre_acquire, client/access.c cnre_access_judge, client/wait.c cnre_access_wait. */
proctype client(byte c)
{
	mtype seen;
	byte o, now, first, failed_before, round;
	bool has_first, was_evicting, do_post;
	{
		do
		:: atomic { round < ROUNDS -> round++; has_first = false; was_evicting = false; seen = 0 };
			atomic {
				if
				:: OBJECTS == 1 || c == 0 -> o = 0
				:: OBJECTS == 2 -> o = LAST
				fi;
				wants[c] = o
			};
#ifdef M_FIRSTGENERATION
			atomic { first = generation[o]; has_first = true };
#endif
			atomic { RAISE(c, o); failed_before = failed[o] };
look:			atomic { seen = state[o]; now = generation[o]; do_post = false };
			/* cnre_access_judge */
			atomic {
				if
				:: seen == READY -> goto done
				:: seen == EVICTING -> was_evicting = true
				:: (seen == ABSENT || seen == LOADING) && !has_first ->
					has_first = true;
					first = now;
#ifdef M_NOREPOST
					do_post = (seen == ABSENT && !was_evicting)
#else
					do_post = (seen == ABSENT)
#endif
#ifndef M_NOGENERATION
				:: (seen == ABSENT || seen == LOADING) && has_first && first != now ->
					assert(failed[o] != failed_before);
					goto done
#endif
				:: else
#ifdef M_FIRSTGENERATION
					-> do_post = (seen == ABSENT)
#endif
				fi
			};
			if
			:: atomic { do_post -> do_post = false; slot[c] = true }    /* cnre_ring_post, cnre_ring_bell */
			:: else
			fi;
			if
			:: atomic { c == 1 && giveups < GIVEUPS -> giveups++; goto done }   /* its deadline */
			:: true
			fi;
#ifdef M_NOCOMPARE
			asleep[c] = true;
#else
			atomic {
				if
				:: state[o] == seen && generation[o] == now -> asleep[c] = true     /* FUTEX_WAIT */
				:: else
				fi
			};
#endif
			!asleep[c];
			goto look;
done:			atomic { LOWER(c, o); now = 0; first = 0; failed_before = 0; do_post = false; seen = 0; has_first = false; was_evicting = false }
		:: round == ROUNDS -> break
		od
	} unless { !alive[c] }
}

/*
 * manager/object.c object_settle: the store, then the wake, two steps for whoever dies or looks in between.
 */
#define STORE(o, s, g) state[o] = s; generation[o] = (g) % GENERATIONS
#ifdef M_WAKEFIRST
#define SETTLE(store, wake) wake; atomic { store }
#else
#define SETTLE(store, wake) atomic { store }; wake
#endif

#ifdef M_NOWAKEREADY
#define WAKE_READY(o) skip
#else
#define WAKE_READY(o) WAKE(o)
#endif
#ifdef M_NOWAKEFAIL
#define WAKE_FAIL(o) skip
#else
#define WAKE_FAIL(o) WAKE(o)
#endif
#ifdef M_NOWAKEREVERT
#define WAKE_REVERT(o) skip
#else
#define WAKE_REVERT(o) WAKE(o)
#endif
#ifdef M_NOWAKEABSENT
#define WAKE_ABSENT(o) skip
#else
#define WAKE_ABSENT(o) WAKE(o)
#endif

inline scan(o)
{
	d_step { found = LEASED_BY(0, o) };
	d_step { found = (found || LEASED_BY(1, o)) }
}

inline end_evicting(o)
{
	scan(o);
	if
	:: atomic { found -> found = false };
		SETTLE(STORE(o, READY, generation[o]), WAKE_REVERT(o))
	:: atomic { !found };
		SETTLE(STORE(o, ABSENT, generation[o] + 1), WAKE_ABSENT(o))
	fi
}

/* residency_evict; the first look, which changes nothing, is the guard of the caller. */
inline evict(o)
{
	state[o] = EVICTING;
	end_evicting(o)
}

/* load_late.c: a read that did not come back; another drive has the object. */
inline move(o)
{
#ifdef M_MOVEGENERATION
	SETTLE(STORE(o, ABSENT, generation[o] + 1), WAKE(o));
#else
	SETTLE(STORE(o, ABSENT, generation[o]), WAKE(o));
#endif
#ifndef M_MOVENOQUEUE
	scan(o);
	atomic {
		if
		:: found -> found = false; queued[o] = true
		:: else
		fi
	}
#else
	skip
#endif
}

/* pump_slot, begin_load, read_done, publish, fail. */
inline load(o)
{
	atomic { state[o] = LOADING; queued[o] = false };
	if
	:: SETTLE(STORE(o, READY, generation[o]), WAKE_READY(o))
	:: atomic { failures < FAILURES -> failures++ };
#ifdef M_SAMEGENERATION
		SETTLE(STORE(o, ABSENT, generation[o]); failed[o]++, WAKE_FAIL(o))
#else
		SETTLE(STORE(o, ABSENT, generation[o] + 1); failed[o]++, WAKE_FAIL(o))
#endif
	:: atomic { moves < MOVES -> moves++ };
		move(o)
	fi
}

/* channel.c take_request, residency_request, queue_push_demand. The slot is FREE before the queue knows it. */
inline take(c)
{
	atomic { slot[c] = false; want = wants[c] };
	atomic {
		if
		:: state[want] == ABSENT && !queued[want] -> queued[want] = true; starter[want] = c
		:: else
		fi;
		want = 0
	}
}

/* session_end, residency_forget_session: what others joined stays queued; the channel goes. */
inline end_session(c)
{
	atomic {
		ended[c] = true;
		slot[c] = false;
#ifdef M_DROPDEAD
		if :: queued[0] && starter[0] == c -> queued[0] = false :: else fi;
		if :: queued[LAST] && starter[LAST] == c -> queued[LAST] = false :: else fi;
#endif
	}
}

/* One word at adoption. LOADING: its slab is quarantined (dma.pml), the object is asked for again below. */
inline adopt(o)
{
	if
	:: state[o] == LOADING ->
#ifdef M_ADOPTGENERATION
		atomic { state[o] = ABSENT; generation[o] = (generation[o] + 1) % GENERATIONS }
#else
		state[o] = ABSENT
#endif
	:: state[o] == EVICTING ->
		scan(o);
		if
		:: atomic { found -> found = false; state[o] = READY }
		:: atomic { !found -> state[o] = ABSENT; generation[o] = (generation[o] + 1) % GENERATIONS }
		fi
	:: else
	fi
}

inline wake_all(o)
{
#ifndef M_ADOPTNOWAKE
	WAKE(o)
#else
	skip
#endif
}

inline look_for_wants(o)
{
#ifndef M_ADOPTNOWANT
	scan(o);
	atomic {
		if
		:: found && state[o] != READY -> queued[o] = true; starter[o] = 0
		:: else
		fi;
		found = false
	}
#else
	skip
#endif
}

#ifdef M_DROPSTARTER
#define WANTED(o) LEASED_BY(starter[o], o)
#else
#define WANTED(o) LEASED(o)
#endif
#if OBJECTS == 1
#define FREE_SLAB(o) true
#else
#define FREE_SLAB(o) (state[1 - (o)] == ABSENT)
#endif

active proctype manager()
{
	bool found, queued[OBJECTS];
	byte starter[OBJECTS], want;
restart:
	{
#ifdef M_ADOPTWANTFIRST
		look_for_wants(0);
#if OBJECTS == 2
		look_for_wants(1);
#endif
#endif
		adopt(0);
#if OBJECTS == 2
		adopt(1);
#endif
		wake_all(0);
#if OBJECTS == 2
		wake_all(1);
#endif
#ifndef M_ADOPTWANTFIRST
		look_for_wants(0);
#if OBJECTS == 2
		look_for_wants(1);
#endif
#endif
end:		do
		:: slot[0] -> take(0)
		:: slot[1] -> take(1)
		:: !alive[0] && !ended[0] -> end_session(0)
		:: !alive[1] && !ended[1] -> end_session(1)
		:: queued[0] && WANTED(0) && FREE_SLAB(0) -> load(0)
		:: atomic { queued[0] && !WANTED(0) -> queued[0] = false }
#if OBJECTS == 2
		:: queued[1] && WANTED(1) && FREE_SLAB(1) -> load(1)
		:: atomic { queued[1] && !WANTED(1) -> queued[1] = false }
		:: queued[0] && WANTED(0) && state[1] == READY && !LEASED(1) -> evict(1)
		:: queued[1] && WANTED(1) && state[0] == READY && !LEASED(0) -> evict(0)
#else
		:: atomic { state[0] == READY && !LEASED(0) && evictions < EVICTIONS -> evictions++ }; evict(0)
#endif
		od
	} unless { manager_dies };
	atomic {
		manager_dies = false; found = false; queued[0] = false; queued[LAST] = false; starter[0] = 0; starter[LAST] = 0; want = 0;
		goto restart
	}
}

active proctype killer()
{
end:	do
	:: atomic { kills < KILLS && alive[1] -> kills++; alive[1] = false; asleep[1] = false }
	:: atomic { deaths < DEATHS && !manager_dies -> deaths++; manager_dies = true }
	od
}

init { atomic { run client(0); run client(1) } }
