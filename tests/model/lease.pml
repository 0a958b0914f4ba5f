/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: no slab is written while somebody reads it, and nobody reads what is not whole (rules R1, R2, R4, R10, R11, R21).
 *
 * Two objects compete for one slab; two clients. A client may be killed at any step, its socket may hang up while it lives,
 * and the manager may be killed at any step: a new one then adopts the directory, the ledgers and the state segment.
 * doc/protocol.md says which function each step stands for. Each line below is one run of run.sh.
 *
 * good   -                    two manager deaths, one client death
 * good   -DHANGUP -DDEATHS=1  a socket may hang up at any step; only the end of the process ends a session
 * mutant M_LOADFIRST assert   client looks at the state before its lease is up
 * mutant M_LATELEASE assert   client's lease leaves its store buffer after its look (L1 or L2 not seq_cst)
 * mutant M_LATEEVICT assert   EVICTING leaves the manager's store buffer after the scan (L3 or L4 not seq_cst)
 * mutant M_SCANFIRST assert   the manager trusts its first look at the ledgers and does not look again
 * mutant M_EARLYREADY assert  READY is stored when the read is half done
 * mutant M_ADOPTEARLY assert  adoption decides an EVICTING before every ledger is on its scan list
 * mutant M_LATESTATE assert   the session enters the state segment only after the welcome; the manager dies in between
 * mutant M_EARLYDETACH assert a client detaches while it still reads
 * mutant M_ADOPTABSENT assert adoption makes EVICTING ABSENT without looking at the ledgers
 * mutant M_ADOPTREADY assert  adoption believes that LOADING was finished
 * mutant M_HANGUPENDS assert -DHANGUP -DDEATHS=1   a hang-up of a living process ends its leases
 */
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef KILLS
#define KILLS 1
#endif
#define NOTHING 2
#define PARTLY 3
#define WORD(c, o) ledger[(c) * 2 + (o)]

mtype = { ABSENT, LOADING, READY, EVICTING };

/* Shared memory: outlives the manager. */
mtype state[2] = ABSENT;
byte ledger[4];
bool in_state[2];               /* the session stands in the state segment */
byte slab = PARTLY;             /* whose bytes are in it */

/* The kernel's: who lives, whose socket is open. */
bool alive[2] = true, attached[2], open[2] = true, leaving[2];
byte reading[2] = NOTHING;      /* what a client is computing on now */

bool scanned[2];                /* the manager's scan list: private, dies with it */
bool manager_dies;
byte deaths, kills;

#ifdef M_LATELEASE
bool late[4];                   /* a lease in the client's store buffer */
active proctype client_buffer()
{
end:	do
	:: atomic { late[0] -> late[0] = false; ledger[0]++ }
	:: atomic { late[1] -> late[1] = false; ledger[1]++ }
	:: atomic { late[2] -> late[2] = false; ledger[2]++ }
	:: atomic { late[3] -> late[3] = false; ledger[3]++ }
	od
}
#endif

#ifdef M_LATEEVICT
bool late_evict;
byte late_object;
active proctype manager_buffer()
{
end:	do
	:: atomic { late_evict -> late_evict = false; state[late_object] = EVICTING }
	od
}
#endif

/* client/acquire.c cnre_acquire, cnre_release on a hit; a miss only looks here, wait.pml waits. */
proctype client(byte c)
{
	byte o;
	mtype seen;
	{
end:		do
		:: atomic {
				attached[c] && !leaving[c] ->
				if
				:: o = 0
				:: o = 1
				fi
			};
#if defined(M_LOADFIRST)
			seen = state[o];
			WORD(c, o)++;
#elif defined(M_LATELEASE)
			late[c * 2 + o] = true;
			seen = state[o];
#else
			WORD(c, o)++;                   /* [L1] */
			seen = state[o];                /* [L2] */
#endif
			if
			:: atomic { seen == READY -> reading[c] = o; assert(slab == o); seen = 0 }
#ifdef M_EARLYDETACH
				if
				:: leaving[c] = true
				:: skip
				fi;
#endif
				atomic { assert(slab == o); reading[c] = NOTHING }
			:: atomic { seen != READY -> seen = 0 }
			fi;
#ifdef M_LATELEASE
			!late[c * 2 + o];
#endif
			atomic {
				if
				:: WORD(c, o) > 0 -> WORD(c, o)--       /* [L5] */
				:: else
				fi;
				o = 0
			}
		:: attached[c] && !leaving[c] -> leaving[c] = true      /* cnre_detach with nothing held */
		od
	} unless { !alive[c] }
}

active proctype killer()
{
end:	do
	:: atomic { kills < KILLS && attached[0] -> kills++; alive[0] = false; reading[0] = NOTHING; open[0] = false }
	:: atomic { kills < KILLS && attached[1] -> kills++; alive[1] = false; reading[1] = NOTHING; open[1] = false }
	:: atomic { deaths < DEATHS && !manager_dies -> deaths++; manager_dies = true }
#ifdef HANGUP
	:: atomic { open[0] && attached[0] -> open[0] = false }
	:: atomic { open[1] && attached[1] -> open[1] = false }
#endif
	od
}

/* manager/session.c session_any_lease: one word after the other, clients run in between. */
inline scan(o)
{
	d_step { found = (scanned[0] && WORD(0, o) > 0) };
	d_step { found = (found || (scanned[1] && WORD(1, o) > 0)) }
}

/* manager/evict.c residency_evict. */
inline evict(o)
{
	scan(o);
	if
	:: atomic { found -> found = false }
	:: atomic { !found } ->
#if defined(M_SCANFIRST)
		state[o] = EVICTING;
#elif defined(M_LATEEVICT)
		atomic { late_evict = true; late_object = o };
		scan(o);
		late_evict = false;
#else
		state[o] = EVICTING;                    /* [L3] */
		scan(o);                                /* [L4] */
#endif
		if
		:: atomic { found -> state[o] = READY; found = false }
		:: atomic { !found -> state[o] = ABSENT }
		fi
	fi
}

/* manager/load.c load_begin, then the kernel writes, then publish. */
inline load(o)
{
	state[o] = LOADING;
	atomic { assert(reading[0] == NOTHING && reading[1] == NOTHING); slab = PARTLY };
#ifdef M_EARLYREADY
	state[o] = READY;
#endif
	atomic { assert(reading[0] == NOTHING && reading[1] == NOTHING); slab = o };
	state[o] = READY
}

/* manager/session.c session_begin. */
inline attach(c)
{
#if defined(M_LATESTATE)
	scanned[c] = true;
	attached[c] = true;
	in_state[c] = true
#else
	in_state[c] = true;
	scanned[c] = true;
	attached[c] = true              /* send_welcome */
#endif
}

/* manager/session.c session_end. */
inline end_session(c)
{
	scanned[c] = false;
	in_state[c] = false
}

#define MAY_ATTACH(c) (alive[c] && open[c] && !attached[c] && !in_state[c] && !scanned[c])

active proctype manager()
{
	bool found;
restart:
	{
		/* The cold start is an adoption of nothing. What was LOADING is quarantined (dma.pml) and asked for again. */
		scanned[0] = in_state[0];
#ifndef M_ADOPTEARLY
		scanned[1] = in_state[1];
#endif
		if
#ifdef M_ADOPTREADY
		:: state[0] == LOADING -> state[0] = READY
#else
		:: state[0] == LOADING -> state[0] = ABSENT
#endif
#ifdef M_ADOPTABSENT
		:: state[0] == EVICTING -> state[0] = ABSENT
#else
		:: state[0] == EVICTING -> evict(0)
#endif
		:: else
		fi;
		if
#ifdef M_ADOPTREADY
		:: state[1] == LOADING -> state[1] = READY
#else
		:: state[1] == LOADING -> state[1] = ABSENT
#endif
#ifdef M_ADOPTABSENT
		:: state[1] == EVICTING -> state[1] = ABSENT
#else
		:: state[1] == EVICTING -> evict(1)
#endif
		:: else
		fi;
#ifdef M_ADOPTEARLY
		scanned[1] = in_state[1];
#endif
end:		do
		:: MAY_ATTACH(0) -> attach(0)
		:: MAY_ATTACH(1) -> attach(1)
		:: (!alive[0] || leaving[0]) && scanned[0] -> end_session(0)    /* pidfd, or DETACH */
		:: (!alive[1] || leaving[1]) && scanned[1] -> end_session(1)
#ifdef M_HANGUPENDS
		:: !open[0] && scanned[0] -> end_session(0)
		:: !open[1] && scanned[1] -> end_session(1)
#endif
		:: state[0] == READY -> evict(0)
		:: state[1] == READY -> evict(1)
		:: state[0] == ABSENT && state[1] == ABSENT -> load(0)
		:: state[0] == ABSENT && state[1] == ABSENT -> load(1)
		od
	} unless { manager_dies };
	atomic {
		scanned[0] = false; scanned[1] = false; found = false; manager_dies = false;
#ifdef M_LATEEVICT
		late_evict = false;
#endif
		goto restart
	}
}

init { atomic { run client(0); run client(1) } }
