/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission within a client: nobody waits for room that is there, no batch waits for leases of its own process while it
 * holds some, and the manager never sees more leased objects than the reservation (rule R17).
 *
 * Three threads of one client with a reservation of two objects: thread 0 wants a batch of two and may give it up, thread 1 a
 * batch of one of these two, the third acquires a single object, takes an error when it does not fit, and may keep it for
 * ever. The gauge counts objects whose ledger word is not zero (client/lease.h); `judge` counts what the manager would.
 *
 * good   -                    gauge exchanged with its waiting mark in one step, under the admission lock
 * mutant M_MARKLATE stuck     the mark is set in a second step after it did not fit
 * mutant M_NOMARK stuck       a batch waits without a mark
 * mutant M_NORUN stuck        who gives room back does not run the queue
 * mutant M_LEAVENORUN stuck   who gives up its place at the head does not run the queue for those behind
 * mutant M_PIECEWISE stuck    batches take their room object by object
 * mutant M_GIVEFIRST assert   room is given back before the ledger word came down
 * mutant M_ADDFIRST assert    the ledger word goes up before room was taken
 * mutant M_KEEPSHARED assert  what two batches lease both is counted twice and given back once
 */
#define RESERVED 2
#define OBJECTS 3
#define NOBODY 3

byte ledger[OBJECTS];                   /* leases of this client, by object */
byte held;                              /* gauge: with `waiting` one word */
bool waiting;
bool locked;                            /* client->admission */
byte queue[2] = NOBODY;                 /* FIFO of batches: thread numbers */
bool admitted[2];

#define SIZE(t) (2 - (t))               /* batch 0: objects 0 and 1; batch 1: object 1 */
byte over;
#define LEASED ((ledger[0] > 0) + (ledger[1] > 0) + (ledger[2] > 0))

active proctype judge()
{
end:	if
	:: atomic { LEASED > RESERVED -> assert(false) }
	:: atomic { over == 3 -> assert(held == 0 && LEASED == 0) }
	fi
}

inline lock()
{
	atomic { !locked -> locked = true }
}

/* cnre_batch_admit: one ledger word after the other; who found one above zero gives that one back. */
inline raise_batch(t)
{
	if
	:: t == 0 -> atomic { shared = (ledger[0] > 0); ledger[0]++ }
	:: else
	fi;
	atomic { shared = shared + (ledger[1] > 0); ledger[1]++ };
	admitted[t] = true;
#ifdef M_KEEPSHARED
	shared = 0
#else
	atomic { held = held - shared; shared = 0 }     /* [G7] */
#endif
}

/* admit_fitting_locked */
inline admit_fitting()
{
	do
	:: queue[0] == NOBODY -> waiting = false; break         /* [G4] */
	:: queue[0] != NOBODY ->
#ifdef M_MARKLATE
		if
		:: atomic { held + SIZE(queue[0]) <= RESERVED -> held = held + SIZE(queue[0]) }
		:: held + SIZE(queue[0]) > RESERVED -> waiting = true; break
		fi;
#else
		atomic {                                        /* [G2]: compare-exchange */
			if
			:: held + SIZE(queue[0]) <= RESERVED -> held = held + SIZE(queue[0])
			:: else ->
#ifndef M_NOMARK
				waiting = true;
#endif
				break
			fi
		};
#endif
		atomic { head = queue[0]; queue[0] = queue[1]; queue[1] = NOBODY };
		if
		:: head == 0 -> raise_batch(0)
		:: head == 1 -> raise_batch(1)
		fi;
		head = 0
	od
}

inline run_queue()
{
	lock();
	admit_fitting();
	locked = false
}

/* cnre_gauge_give */
inline give()
{
	atomic { held--; was_waiting = waiting };       /* [G3] */
	if
#ifndef M_NORUN
	:: was_waiting -> run_queue()
#endif
	:: else
	fi;
	was_waiting = false
}

/* cnre_lease_lower */
inline lower(o)
{
#ifdef M_GIVEFIRST
	if
	:: ledger[o] == 1 -> give(); ledger[o]--
	:: else -> ledger[o]--
	fi
#else
	atomic { ledger[o]--; last = (ledger[o] == 0) };
	if
	:: last -> last = false; give()
	:: else
	fi
#endif
}

/* cnre_batch_begin, cnre_admission_wait, releases, cnre_batch_end */
proctype batch(byte t)
{
	byte head, shared;
	bool was_waiting, last;

#ifdef M_PIECEWISE
	atomic { held < RESERVED -> held++ };
	atomic { held < RESERVED -> held++ };           /* here both want two: each may have one */
	raise_batch(t);
#else
	lock();
	atomic {
		if
		:: queue[0] == NOBODY -> queue[0] = t
		:: else -> queue[1] = t
		fi
	};
	if
	:: queue[0] == t -> admit_fitting()
	:: else
	fi;
	locked = false;
	if
	:: admitted[t]
	:: t == 0 && !admitted[t] ->                    /* its caller gives it up: cnre_batch_end, cnre_admission_leave */
		lock();
		atomic {
			if
			:: queue[0] == t -> queue[0] = queue[1]; queue[1] = NOBODY
			:: queue[1] == t -> queue[1] = NOBODY
			:: else
			fi
		};
#ifndef M_LEAVENORUN
		admit_fitting();
#endif
		locked = false;
		if
		:: !admitted[t] -> goto out
		:: admitted[t]
		fi
	fi;
#endif
	if
	:: t == 0 -> lower(0)
	:: else
	fi;
	lower(1);
out:	over++
}

/* cnre_lease_raise: room, then the ledger; then cnre_lease_lower */
proctype single(byte o)
{
	byte head, shared;
	bool was_waiting, last, had;

#ifdef M_ADDFIRST
	ledger[o]++;
#endif
	if
	:: atomic { ledger[o] > 0 -> ledger[o]++ }      /* cnre_ledger_add_shared */
	:: atomic { ledger[o] == 0 && held < RESERVED -> held++ };
		atomic { had = (ledger[o] > 0); ledger[o]++ };
		if
		:: had -> had = false; give()
		:: else
		fi
	:: ledger[o] == 0 && held >= RESERVED -> goto out       /* -ENOSPC */
	fi;
	if
	:: true -> lower(o)
	:: true ->
end_kept:	false
	fi;
out:	over++
}

init {
	atomic {
		run batch(0);
		run batch(1);
#ifndef M_PIECEWISE
		run single(2)
#endif
	}
}
