/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request slots and their ring: no request is lost, none is taken twice, and each arrives as it was written, also past
 * holes, when the tail runs ahead of the head by more than the ring, and when a thread stops between two steps (R13).
 *
 * Two threads of one client post REQUESTS each through two slots and two cells, so that laps overtake each other. The
 * manager sleeps while cnre_ring_is_pending says no; who waits for a request that nobody will take is an invalid end state.
 *
 * good   -                    three requests of each thread
 * good   -DSTOP -DREQUESTS=2  thread 1 may stop for ever at any step; thread 0 is served all the same
 * good   -DHOSTILE            something writes tail, cells and slot states at will: take ends within its bound
 * mutant M_JUMPNOW stuck      head jumps to the tail of now, not to the one that was loaded before the look at the slots
 * mutant M_JUMPFIRST stuck    head jumps at a hole before the slots were looked at
 * mutant M_TAILFIRST stuck    the client adds to the tail before its slot is SUBMITTED
 * mutant M_NOLAP stuck        cells do not carry their lap
 * mutant M_NOLOOK stuck -DSTOP -DREQUESTS=2   a hole is waited for instead of looking at the slots
 * mutant M_FREEFIRST assert   the slot is FREE before its contents were copied
 * mutant M_FILLLATE assert    SUBMITTED before the contents are written
 * mutant M_CLAIMSTORE stuck   a slot is claimed by a load and a store
 * mutant M_NOBOUND assert -DHOSTILE   take believes any tail and walks to it cell by cell
 */
#ifndef REQUESTS
#define REQUESTS 3
#endif
#define SLOTS 2
#define LAP(position) ((position) / SLOTS + 1)

mtype = { FREE, CLAIMED, SUBMITTED };

/* The channel. */
mtype slot[SLOTS] = FREE;
byte owner[SLOTS], number[SLOTS];               /* two words of contents */
byte cell_lap[SLOTS], cell_slot[SLOTS];         /* one 32-bit word in the code: written and read together */
byte tail;

byte next[2];                                   /* ghost: requests of each thread taken so far, one bit each */
bool stopped;

/* shm/ring.c cnre_ring_post. */
inline post(me, n)
{
	/* claim_slot; no slot: the client asks for a scan of its ledger in the code, and waits for a slot here */
	atomic {
		if
		:: slot[0] == FREE -> mine = 0
		:: slot[1] == FREE -> mine = 1
		fi;
#ifndef M_CLAIMSTORE
		slot[mine] = CLAIMED            /* [Q1] */
#endif
	};
#ifdef M_CLAIMSTORE
	slot[mine] = CLAIMED;
#endif
#ifdef M_FILLLATE
	slot[mine] = SUBMITTED;
#endif
	owner[mine] = me;
	number[mine] = n;
#ifdef M_TAILFIRST
	atomic { position = tail; tail++ };
	slot[mine] = SUBMITTED;
#else
#ifndef M_FILLLATE
	slot[mine] = SUBMITTED;                 /* [Q2] */
#endif
	atomic { position = tail; tail++ };     /* [Q15] */
#endif
	atomic { cell_lap[position % SLOTS] = LAP(position); cell_slot[position % SLOTS] = mine; mine = 0; position = 0 }       /* [Q3] */
}

proctype thread(byte me)
{
	byte n, mine, position;
	{
		do
		:: n < REQUESTS -> post(me, n); n++
		:: n == REQUESTS -> break
		od;
		next[me] == (1 << REQUESTS) - 1;        /* everything was taken, or this blocks for ever */
	} unless { me == 1 && stopped }
}

#ifdef STOP
active proctype stopper()
{
end:	stopped = true
}
#endif

/* shm/ring.c take_slot: taken is set; what was copied is handed to the claims. */
inline take_slot(s)
{
	steps++;
	if
	:: slot[s] == SUBMITTED ->              /* [Q5] */
#ifdef M_FREEFIRST
		slot[s] = FREE;
#endif
		copy_owner = owner[s];
		copy_number = number[s];
#ifndef M_FREEFIRST
		slot[s] = FREE;                 /* [Q6] */
#endif
		atomic {
#ifndef HOSTILE
			assert((next[copy_owner] & (1 << copy_number)) == 0);
			next[copy_owner] = next[copy_owner] | (1 << copy_number);
#endif
			copy_owner = 0; copy_number = 0;
			taken = true
		}
	:: else
	fi
}

#define PENDING (tail != head && (slot[0] == SUBMITTED || slot[1] == SUBMITTED))
#ifdef M_NOBOUND
#define BOUND 255
#else
#define BOUND SLOTS
#endif

/* shm/ring.c cnre_ring_take. */
inline take()
{
	atomic { taken = false; steps = 0; told = tail };       /* [Q24] */
	/* take_in_order */
	do
	:: (told - head) <= BOUND && head != told && !taken ->
		atomic { lap = cell_lap[head % SLOTS]; s = cell_slot[head % SLOTS] };   /* [Q4] */
#ifndef M_NOLAP
		if
		:: lap != LAP(head) -> break
		:: else
		fi;
#endif
		head++;
		take_slot(s)
	:: else -> break
	od;
#ifdef HOSTILE
	assert(steps <= SLOTS);
#endif
	atomic { s = 0; lap = 0 };
	/* take_any, after a hole or from too far behind */
	if
	:: !taken && head != told ->
#ifdef M_JUMPFIRST
		head = told;
#endif
#ifndef M_NOLOOK
		take_slot(0);
		if
		:: !taken -> take_slot(1)
		:: else
		fi;
#ifdef M_JUMPNOW
		if
		:: !taken -> head = tail
		:: else
		fi
#else
		if
		:: !taken -> head = told
		:: else
		fi
#endif
#else
		cell_lap[head % SLOTS] == LAP(head)
#endif
	:: else
	fi;
	atomic { told = 0; steps = 0 }
}

active proctype manager()
{
	byte head, told, lap, s, copy_owner, copy_number, steps;
	bool taken;
end:	do
	:: PENDING || taken -> take()   /* manager/channel.c serve: until it says 0; then the last look before sleep */
#ifdef HOSTILE
	:: head > 6 -> break
#endif
	od
}

#ifdef HOSTILE
active proctype hostile()
{
	do
	:: tail < 8 -> tail++
	:: tail < 4 -> tail = tail + 4
	:: cell_lap[0] = 1
	:: cell_lap[0] = 2
	:: cell_slot[0] = 1 - cell_slot[0]
	:: cell_lap[1] = 1
	:: slot[0] = SUBMITTED
	:: slot[1] = SUBMITTED
	:: slot[0] = FREE
	:: break
	od
}
#else
init { atomic { run thread(0); run thread(1) } }
#endif
