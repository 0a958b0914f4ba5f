/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas of a GPU: none is freed while a client has it open, and none is opened after it was freed; both would be undefined in
 * the driver (shm/vram.h). Leases are those of lease.pml.
 *
 * One arena with one entry, which the manager empties, frees and makes anew; two clients, or two threads of one. A client may be
 * killed at any step: the kernel closes what it had open before its end is seen. A socket may hang up while its client lives.
 * All of it dies with the manager, so no restart is here. Who opens holds a lease, so it does not matter whether its bit comes
 * before the driver's call or after it, only that it is there before the lease is down.
 *
 * good   -                    two clients, one of which may be killed
 * good   -DTHREADS            two threads of one
 * good   -DHANGUP             a socket may hang up at any step; only the end of the process ends a session
 * mutant M_BUFFERED assert    the bit leaves the client's store buffer after its lease is down (VO1)
 * mutant M_EARLYCLEAR assert  a client clears its bit before it closed (VO2)
 * mutant M_NOLEASE assert     a client opens after its lease went down
 * mutant M_NOBITS assert      the manager frees an empty arena without looking at the bits
 * mutant M_BITSFIRST assert   the manager looks at the bits before it has moved the entry out
 * mutant M_CLOSEUSED assert -DTHREADS   a thread closes what another thread of its process reads
 * mutant M_WORDLATE assert -DTHREADS    a thread takes the arena back after it has closed it, not before
 * mutant M_HANGUPENDS assert -DHANGUP   a hang-up of a living process ends what its ledger says
 */
#ifdef THREADS
#define KILLS 0
#else
#define KILLS 1
#endif

mtype = { ABSENT, READY, EVICTING };
mtype = { NONE, LIVE, CLOSING };

/* The manager's segment, and its memory. */
mtype state = ABSENT;
mtype arena = NONE;
bool exists;

/* Ledgers. */
byte lease[2];
bool marked[2];

/* Private to a client: the arena's word, and the table's lock. */
bool is_open[2];
byte uses[2];
bool locked[2];

/* The driver's and the kernel's. */
bool mapped[2];
bool alive[2] = true, connected[2] = true;
bool scanned[2] = true;
byte kills;

#ifdef M_BUFFERED
bool late[2];
active proctype buffer()
{
end:	do
	:: atomic { late[0] -> late[0] = false; marked[0] = true }
	:: atomic { late[1] -> late[1] = false; marked[1] = true }
	od
}
#endif

/* vram_arena.c open_arena: lock held. */
inline open_arena(c)
{
#if defined(M_BUFFERED)
	late[c] = true;
	atomic { assert(exists); mapped[c] = true };
#else
	marked[c] = true;                          /* [VO1] */
	atomic { assert(exists); mapped[c] = true };
#endif
	atomic { is_open[c] = true; uses[c] = 1 }        /* [VA5] */
}

/* vram_arena.c close_unleased: lock held. */
inline close_arena(c)
{
#if defined(M_CLOSEUSED)
	if
	:: atomic { is_open[c] -> is_open[c] = false };
#elif defined(M_WORDLATE)
	if
	:: is_open[c] && uses[c] == 0 ->
#else
	if
	:: atomic { is_open[c] && uses[c] == 0 -> is_open[c] = false };       /* [VA3] */
#endif
#if defined(M_EARLYCLEAR)
		marked[c] = false;
		mapped[c] = false
#else
		mapped[c] = false;
		marked[c] = false                  /* [VO2] */
#endif
#ifdef M_WORDLATE
		;
		is_open[c] = false
#endif
	:: else
	fi
}

/* vram_arena.c raise_open, else raise_closed. */
inline raise_arena(c)
{
	if
	:: atomic { is_open[c] -> uses[c]++ }            /* [VA1] */
	:: atomic { !is_open[c] } ->
		atomic { !locked[c] -> locked[c] = true };
		if
		:: atomic { is_open[c] -> uses[c]++ }
		:: else -> open_arena(c)
		fi;
		locked[c] = false
	fi
}

proctype client(byte c)
{
	mtype seen;
	{
end:		do
		:: lease[c]++;                          /* [L1] */
			seen = state;                   /* [L2] */
			if
			:: seen == READY ->
#ifdef M_NOLEASE
				lease[c]--;
#endif
				raise_arena(c);
				assert(exists && mapped[c]);
				assert(exists && mapped[c]);
#ifndef M_NOLEASE
				lease[c]--;             /* [L5], then [VA2] */
#endif
				if
				:: atomic { uses[c] > 0 -> uses[c]-- }
				:: else
				fi
			:: else -> lease[c]--
			fi;
			seen = 0
		/* vram_arena.c cnre_vram_arena_look */
		:: atomic { arena == CLOSING && is_open[c] && !locked[c] -> locked[c] = true };
			close_arena(c);
			locked[c] = false
		od
	} unless { !alive[c] }
}

active proctype killer()
{
end:	do
	:: atomic { kills < KILLS && alive[0] -> kills++; alive[0] = false; mapped[0] = false }
	:: atomic { kills < KILLS && alive[1] -> kills++; alive[1] = false; mapped[1] = false }
#ifdef HANGUP
	:: atomic { connected[0] && alive[0] -> connected[0] = false }
	:: atomic { connected[1] && alive[1] -> connected[1] = false }
#endif
	od
}

inline scan_leases()
{
	d_step { found = (scanned[0] && lease[0] > 0) };
	d_step { found = (found || (scanned[1] && lease[1] > 0)) }
}

inline scan_bits()
{
	d_step { found = (scanned[0] && marked[0]) };
	d_step { found = (found || (scanned[1] && marked[1])) }
}

inline free_arena()
{
	atomic { assert(!mapped[0] && !mapped[1]); exists = false; arena = NONE }
}

active proctype manager()
{
	bool found;
end:	do
	:: arena == NONE -> exists = true; arena = LIVE
	:: arena == LIVE && state == ABSENT -> state = READY      /* the upload's end */
	:: arena == LIVE -> arena = CLOSING
	:: state == READY ->
		state = EVICTING;                                /* [L3] */
		scan_leases();                                   /* [L4] */
		if
		:: found -> state = READY
		:: else -> state = ABSENT
		fi;
		found = false
#if defined(M_BITSFIRST)
	:: arena == CLOSING && state == READY ->
		scan_bits();
		if
		:: !found ->
			state = EVICTING;
			scan_leases();
			if
			:: found -> state = READY
			:: else -> state = ABSENT; free_arena()
			fi
		:: else
		fi;
		found = false
#elif defined(M_NOBITS)
	:: arena == CLOSING && state == ABSENT -> free_arena()
#endif
	:: arena == CLOSING && state == ABSENT ->
		scan_bits();                                     /* [VO3] */
		if
		:: !found -> free_arena()
		:: else
		fi;
		found = false
	:: !alive[0] && scanned[0] -> scanned[0] = false         /* pidfd */
	:: !alive[1] && scanned[1] -> scanned[1] = false
#ifdef M_HANGUPENDS
	:: !connected[0] && scanned[0] -> scanned[0] = false
	:: !connected[1] && scanned[1] -> scanned[1] = false
#endif
	od
}

init
{
	atomic {
		run client(0);
#ifdef THREADS
		run client(0)
#else
		run client(1)
#endif
	}
}
