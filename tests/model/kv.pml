/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A match without the manager: a client follows a link that may lead anywhere by now, raises its lease, looks at the state,
 * and only then at what the entry is called. What it then believes stays as it is until the lease is down: name and bytes
 * (shm/kv.h, rules R1, R24). Two clients, two names, an entry that is used again, blocks with and without a file, and a
 * manager that dies anywhere.
 *
 * good   -                    whoever believes an entry reads its own name and its own bytes, as often as it looks
 * mutant M_NOCOMPARE assert   the link is believed: the entry has been given another name
 * mutant M_EARLYNAME assert   the name is compared before the lease is up: it changes in between
 * mutant M_NOSCAN assert      memory is given back without a look at the ledgers
 * mutant M_ONELOOK assert     the look comes before EVICTING is stored: a lease raised in between is overlooked
 * mutant M_BAREFREE assert    what is ABSENT is forgotten without EVICTING: it has no memory, but a name
 * mutant M_EARLYREADY assert  READY is stored before the bytes are there
 * mutant M_ADOPTFREE assert   a successor frees what was EVICTING instead of asking the ledgers again
 */
#define NAMES 2
#define ENTRIES 1
#define CLIENTS 2
#define ROUNDS 1
#define ACTIONS 5
#define NOWHERE ENTRIES

mtype = {FREE, ABSENT, LOADING, READY, EVICTING};

mtype state[ENTRIES] = FREE;
byte name[ENTRIES];             /* 1..NAMES; what the entry says it is */
byte content[ENTRIES];          /* whose bytes its memory holds; 0: none */
bool file[ENTRIES];
bool indexed[ENTRIES];
byte link[3] = NOWHERE;         /* by name */
byte lease[2];                  /* [client * ENTRIES + entry] */
byte deaths;
bool dies;

#define LEASE(c, e) lease[(c) * ENTRIES + (e)]
#define LEASED(e) (LEASE(0, e) + LEASE(1, e) > 0)

proctype client(byte me)
{
	byte n, wanted, e, seen_name;
	mtype seen;

	do
	:: n == ROUNDS -> break
	:: n < ROUNDS ->
		n++;
		if
		:: wanted = 1
		:: wanted = 2
		fi;
		e = link[wanted];
		if
		:: e == NOWHERE
		:: else ->
			seen_name = name[e];
			LEASE(me, e)++;                 /* cnre_ledger_add */
			seen = state[e];                /* cnre_ledger_load_state */
#ifndef M_EARLYNAME
			seen_name = name[e];
#endif
#ifdef M_NOCOMPARE
			seen_name = wanted;
#endif
			if
			:: (seen == READY || seen == ABSENT || seen == LOADING) && seen_name == wanted ->
				assert(name[e] == wanted);
				if
				:: seen == READY -> assert(content[e] == wanted); assert(content[e] == wanted)
				:: else ->
					/* cnre_kv_block: READY now, or another try */
					seen = state[e];
					if
					:: seen == READY -> assert(content[e] == wanted)
					:: else
					fi
				fi;
				assert(name[e] == wanted)
			:: else
			fi;
			LEASE(me, e)--;
			e = 0; seen_name = 0; seen = 0
		fi;
		wanted = 0
	od
}

/* close_to_clients, and what follows; `gives` FREE or ABSENT. */
inline leave(e, was, held)
{
#ifdef M_ONELOOK
	held = LEASED(e);
#endif
	state[e] = EVICTING;
#ifndef M_ONELOOK
#ifdef M_NOSCAN
	held = false;
#else
	held = LEASE(0, e) > 0;
	held = (held || LEASE(1, e) > 0);
#endif
#endif
	if
	:: held -> state[e] = was
	:: else ->
		content[e] = 0;
		if
		:: file[e] && was == READY && indexed[e] -> state[e] = ABSENT
		:: else -> forget(e)
		fi
	fi
}

/* cnre_kv_index_remove, set_free */
inline forget(e)
{
	indexed[e] = false;
	if
	:: link[name[e]] == e -> link[name[e]] = NOWHERE
	:: else
	fi;
	file[e] = false;
	state[e] = FREE
}

/* kv_publish.c, insert; found_one in kv_files.c, where there are no bytes yet */
inline publish(e, n, is_found)
{
	name[e] = n;
	if
	:: is_found -> file[e] = true; state[e] = ABSENT
	:: else ->
#ifdef M_EARLYREADY
		state[e] = READY;
		content[e] = n
#else
		content[e] = n;
		state[e] = READY
#endif
	fi;
	indexed[e] = true;
	link[n] = e
}

inline adopt(e)
{
	if
	:: state[e] == EVICTING ->
#ifdef M_ADOPTFREE
		content[e] = 0; forget(e)
#else
		if
		:: content[e] != 0 -> state[e] = READY
		:: else -> state[e] = ABSENT
		fi
#endif
	:: state[e] == LOADING -> indexed[e] = false /* its memory is not used until the fence falls */
	:: else
	fi;
	if
	:: state[e] == FREE -> content[e] = 0; indexed[e] = false
	:: else
	fi;
	if /* chains anew from is_indexed */
	:: name[e] != 0 && indexed[e] -> link[name[e]] = e
	:: name[e] != 0 && !indexed[e] && link[name[e]] == e -> link[name[e]] = NOWHERE
	:: else
	fi
}

active proctype manager()
{
	byte e, n, actions;
	bool held;

restart:
	{
		do
		:: actions < ACTIONS ->
			actions++;
			if
			:: state[e] == FREE ->
				if
				:: n = 1
				:: n = 2
				fi;
				if
				:: link[n] == NOWHERE -> publish(e, n, false)
				:: link[n] == NOWHERE -> publish(e, n, true)
				:: link[n] != NOWHERE
				fi;
				n = 0
			:: state[e] == READY -> leave(e, READY, held); held = false
			:: state[e] == READY && !file[e] -> file[e] = true
			:: state[e] == ABSENT ->
#ifdef M_BAREFREE
				content[e] = 0; forget(e)
#else
				leave(e, ABSENT, held); held = false
#endif
			:: state[e] == ABSENT && file[e] && indexed[e] && LEASED(e) ->
				state[e] = LOADING; content[e] = name[e]; state[e] = READY
			:: else
			fi
		:: actions == ACTIONS -> break
		od
	} unless { dies };
	if
	:: atomic { dies -> dies = false; held = false; n = 0; e = 0 };
		adopt(0);
		goto restart
	:: else
	fi
}

active proctype killer()
{
	do
	:: atomic { deaths == 0 && !dies -> deaths++; dies = true }
	:: break
	od
}

init { atomic { run client(0); run client(1) } }
