/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Releasing twice: thread B copies what it acquired and releases both copies, at once or one after the other; that never
 * costs thread A its lease, and nothing stays pinned (rule R5). One process, two threads, one object, a manager that evicts.
 *
 * By default a lease is a cookie in a private table, as with CNRE_CHECK=1: slot and sequence, ended by compare-exchange.
 * With -DLEDGERONLY there is no table, and the ledger refuses to go below zero: then a second release may take the lease of
 * another thread of the *same* process, which spoils only its own reads, but the word never borrows and nothing stays pinned.
 *
 * good   -                    cookies: A always reads its own bytes; at the end the ledger is zero
 * good   -DLEDGERONLY         no cookies: at the end the ledger is zero
 * mutant M_NOTABLE assert     no cookies, and the claim that A reads its own bytes
 * mutant M_NOSEQUENCE assert  a cookie is a slot alone: the stale copy ends whatever lease lives there now
 * mutant M_LOADSTORE assert   the cookie ends by a load and a store: two releases of one copy both pass
 * mutant M_BORROW assert -DLEDGERONLY   release subtracts without looking: below zero it borrows, and the object is pinned
 * mutant M_ACCESSLOW assert   accesses in the low half: their carry becomes a lease that nobody gives back
 */
#define WIDTH 4                 /* leases modulo this: a borrow shows as WIDTH - 1 */
#ifdef M_NOTABLE
#define LEDGERONLY
#endif
#ifdef M_ACCESSLOW
#define ROUNDS 5
#else
#define ROUNDS 2
#endif

byte leases, accesses;          /* the ledger word */
bool evicting, reused;          /* state is not READY; the slab has other bytes */
byte table[2];                  /* cookie slots: 0 free, else the sequence */
byte next_sequence = 1;         /* log positions: never the same twice */
byte over;

/* cnre_ledger_add, cnre_ledger_load_state, cnre_cookies_make */
inline acquire(cookie_slot, sequence, ok)
{
	atomic {
		leases = (leases + 1) % WIDTH;
		accesses++;
#ifdef M_ACCESSLOW
		if
		:: accesses == 4 -> accesses = 0; leases = (leases + 1) % WIDTH
		:: else
		fi
#endif
	};
	ok = !evicting;
	if
	:: !ok -> drop()
	:: else ->
		atomic {
			sequence = next_sequence;
			next_sequence++;
			if
			:: table[0] == 0 -> cookie_slot = 0
			:: table[0] != 0 -> cookie_slot = 1
			fi;
			table[cookie_slot] = sequence
		}
	fi
}

/* cnre_ledger_drop: compare-exchange, so one step */
inline drop()
{
	atomic {
#ifdef M_BORROW
		leases = (leases + WIDTH - 1) % WIDTH
#else
		if
		:: leases > 0 -> leases--
		:: else
		fi
#endif
	}
}

#ifdef M_NOSEQUENCE
#define IS_COOKIE(cookie_slot, sequence) (table[cookie_slot] != 0)
#else
#define IS_COOKIE(cookie_slot, sequence) (table[cookie_slot] == sequence)
#endif

/* cnre_release: cnre_lease_object, cnre_lease_lower */
inline release(cookie_slot, sequence)
{
#if defined(LEDGERONLY)
	drop()
#elif defined(M_LOADSTORE)
	if
	:: IS_COOKIE(cookie_slot, sequence) -> table[cookie_slot] = 0; drop()
	:: else
	fi
#else
	if
	:: atomic { IS_COOKIE(cookie_slot, sequence) -> table[cookie_slot] = 0 }; drop()
	:: atomic { !IS_COOKIE(cookie_slot, sequence) -> skip }
	fi
#endif
}

#ifdef LEDGERONLY
#ifdef M_NOTABLE
#define CLAIM(e) assert(e)
#else
#define CLAIM(e) skip
#endif
#else
#define CLAIM(e) assert(e)
#endif

/* Reads twice under its lease. A lease that outlived an eviction would be seen here. */
proctype a()
{
	bool ok;
	byte cookie_slot, sequence, n;

	do
	:: n < ROUNDS ->
		n++;
		acquire(cookie_slot, sequence, ok);
		if
		:: ok -> CLAIM(!reused); CLAIM(!reused); release(cookie_slot, sequence)
		:: else
		fi
	:: n == ROUNDS -> break
	od;
	over++
}

proctype copy(byte cookie_slot, sequence)
{
	release(cookie_slot, sequence);
	over++
}

proctype b()
{
	bool ok;
	byte cookie_slot, sequence;

	acquire(cookie_slot, sequence, ok);
	if
	:: ok -> run copy(cookie_slot, sequence); release(cookie_slot, sequence)
	:: else -> over++
	fi;
	over++
}

proctype manager()
{
	do
	:: !evicting ->
		evicting = true;
		if
		:: leases == 0 -> reused = true; break
		:: leases != 0 -> evicting = false
		fi
	:: over == 3 -> break
	od
}

proctype judge()
{
	over == 3 -> assert(leases == 0)
}

init { atomic { run a(); run b(); run manager(); run judge() } }
