/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reservations: a demand on a drive that works is always served, whatever others do (rules R15, R16, R17).
 *
 * Two clients with a reservation of one object each; objects 0..2 lie on a drive that works, 3 and 4 on one whose reads
 * never end. A client may stop for ever with its lease up, or wait for the hung drive, time out and ask for another object.
 * The pool has sum(reservations) + reads in flight on the hung drive windows, all of one size. The granted bound in
 * manager/reservation.c counts the reads of every drive, so it is never below this one. A healthy demand that can never be
 * served is an invalid end state.
 *
 * good   -                    sum(R) + Q windows; prefetch of anything at any time that the manager allows
 * good   -DEVERYTHING         more reserved than there are windows, but a window for all that can be there (everything_fits)
 * mutant M_SHORT stuck        one window fewer
 * mutant M_EVERYTHINGSHORT stuck -DEVERYTHING   their bytes would fit, but one window is missing
 * mutant M_NOCAP stuck        reads of the hung drive are not capped
 * mutant M_FORGETTIMEOUT stuck   a read that its demand gave up no longer counts as in flight
 * mutant M_ONEPOOL stuck      one cap for all drives together instead of one per drive
 * mutant M_BEYOND stuck       a client may hold or wait for one more than it reserved
 * mutant M_KEEPPREFETCH stuck a prefetched object cannot be evicted until it was used
 */
#define OBJECTS 5
#define IS_HUNG(o) ((o) >= 3)
#define CAP 1                           /* reads in flight of a drive */
#ifdef EVERYTHING
#define RESERVED 3                      /* each: six together */
#ifdef M_EVERYTHINGSHORT
#define WINDOWS 3
#else
#define WINDOWS (3 + CAP)               /* of the objects on the hung drive CAP can be there at once */
#endif
#else
#define RESERVED 1
#ifdef M_SHORT
#define WINDOWS (2 * RESERVED + CAP - 1)
#else
#define WINDOWS (2 * RESERVED + CAP)
#endif
#endif
#ifdef M_BEYOND
#define LIMIT (RESERVED + 1)
#else
#define LIMIT RESERVED
#endif
#define PREFETCHES 2
#define NOBODY OBJECTS

mtype = { ABSENT, LOADING, READY };

mtype state[OBJECTS] = ABSENT;
byte window[4] = NOBODY;                /* whose slab is in it */
byte lease[2];                          /* one bit an object: the ledgers */
byte held[2];
bool kept[OBJECTS];                     /* mutants: not yet used, so not a victim */
byte in_flight, prefetches;

#define BIT(o) (1 << (o))
#define LEASED(o) ((lease[0] | lease[1]) & BIT(o))
#define CAN_EMPTY(w) (window[w] == NOBODY || (state[window[w]] == READY && !LEASED(window[w]) && !kept[window[w]]))
#ifdef M_NOCAP
#define HAS_ROOM(o) true
#else
#ifdef M_ONEPOOL
#define HAS_ROOM(o) (in_flight < CAP)
#else
#define HAS_ROOM(o) (!IS_HUNG(o) || in_flight < CAP)
#endif
#endif

inline lower(c, o)
{
	lease[c] = lease[c] & ~BIT(o);
	held[c]--
}

proctype client(byte c)
{
	byte o;

	do
	:: atomic {
			held[c] < LIMIT ->
			if
			:: !(lease[c] & BIT(0)) -> o = 0
			:: !(lease[c] & BIT(1)) -> o = 1
			:: !(lease[c] & BIT(2)) -> o = 2
			:: !(lease[c] & BIT(3)) -> o = 3
			:: !(lease[c] & BIT(4)) -> o = 4
			fi;
			lease[c] = lease[c] | BIT(o);
			held[c]++
		};
		if
		:: !IS_HUNG(o) -> atomic { state[o] == READY -> kept[o] = false }       /* must come true */
		:: IS_HUNG(o) ->
end_hung:		if
			:: state[o] == READY
			:: atomic { true ->             /* its deadline */
				lower(c, o);
#ifdef M_FORGETTIMEOUT
				if
				:: state[o] == LOADING && in_flight > 0 -> in_flight--
				:: else
				fi
#endif
			}
			fi
		fi;
		o = 0
	:: atomic { (lease[c] & BIT(0)) && state[0] == READY -> lower(c, 0) }
	:: atomic { (lease[c] & BIT(1)) && state[1] == READY -> lower(c, 1) }
	:: atomic { (lease[c] & BIT(2)) && state[2] == READY -> lower(c, 2) }
	:: true ->
end_stopped:	false                   /* SIGSTOP, for ever, with what it holds */
	od
}

/* manager/evict.c evict_take_slab, manager/load.c load_begin: eviction and load in one turn of the core thread. */
inline begin_load(o, w)
{
	if
	:: window[w] != NOBODY -> state[window[w]] = ABSENT
	:: else
	fi;
	window[w] = o;
	state[o] = LOADING;
#ifdef M_ONEPOOL
	in_flight++
#else
	if
	:: IS_HUNG(o) -> in_flight++
	:: else
	fi
#endif
}

#ifdef M_ONEPOOL
#define END_READ in_flight--
#else
#define END_READ skip
#endif
#ifdef M_KEEPPREFETCH
#define KEEP(o) kept[o] = true
#else
#define KEEP(o) skip
#endif
#define HEALTHY_DEMAND ((state[0] == ABSENT && LEASED(0)) || (state[1] == ABSENT && LEASED(1)) || (state[2] == ABSENT && LEASED(2)))
#define DEMAND(o, w) :: atomic { (w) < WINDOWS && state[o] == ABSENT && LEASED(o) && HAS_ROOM(o) && CAN_EMPTY(w) -> begin_load(o, w) }
#define PREFETCH(o, w) :: atomic { (w) < WINDOWS && prefetches < PREFETCHES && !HEALTHY_DEMAND && state[o] == ABSENT && !LEASED(o) && \
	HAS_ROOM(o) && CAN_EMPTY(w) -> prefetches++; begin_load(o, w); KEEP(o) }
#define READ_DONE(o) :: atomic { state[o] == LOADING -> state[o] = READY; END_READ }
#define EACH(what, w) what(0, w) what(1, w) what(2, w) what(3, w) what(4, w)

active proctype manager()
{
end:	do
	EACH(DEMAND, 0) EACH(DEMAND, 1) EACH(DEMAND, 2)
	EACH(PREFETCH, 0) EACH(PREFETCH, 1) EACH(PREFETCH, 2)
#ifdef EVERYTHING
	EACH(DEMAND, 3)
#endif
	READ_DONE(0) READ_DONE(1) READ_DONE(2)
	od
}

init { atomic { run client(0); run client(1) } }
