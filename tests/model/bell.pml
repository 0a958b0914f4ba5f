/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doorbell: whatever a client posts while the manager falls asleep is served (rule R14).
 *
 * Two clients post, look at `awake`, and ring their own bell when it is 0; then they wait for their answer, without a
 * time-out. Client 1 attaches while the bell machinery is already asleep, and both may leave. By default the manager sleeps
 * on futex operations of the io_uring; with -DTHREAD on an eventfd that a bell thread writes (manager/bell_thread.c, the
 * form with futex_waitv). A fence that is missing is modelled as the store that it should have ordered coming late.
 *
 * good   -                    ring operations, one manager death
 * good   -DTHREAD             a thread with its lock and its `seen` words
 * mutant M_NOFENCECLIENT stuck   the client looks at awake before its post is visible (no [Q7])
 * mutant M_NOFENCEMANAGER stuck  awake = 0 is visible only after the last look (no [B2])
 * mutant M_NOLOOK stuck       no look between awake = 0 and sleep
 * mutant M_ARMLATE stuck      the bell to compare with is loaded after the last look ([B1] after [B2])
 * mutant M_UNARMED stuck      a bell that could not be armed, and the manager sleeps all the same
 * mutant M_NOREARM stuck      a bell that rang is not armed again
 * mutant M_CONSTANT stuck     the client wakes without changing the word
 * mutant M_NOSTIR stuck -DTHREAD     a bell is added without moving the control word
 * mutant M_NOSEEN stuck -DTHREAD     the thread takes what it reads for known instead of comparing it with `seen`
 * mutant M_WAITFRESH stuck -DTHREAD  the thread sleeps on values that it read after its look
 * mutant M_EVENTLATE stuck -DTHREAD  the manager clears the eventfd after its last look
 * mutant M_UNLOCKED assert -DTHREAD  the thread reads its words without the lock
 */
#define POSTS 2
#ifdef THREAD
#define DEATHS 0
#else
#define DEATHS 1
#endif

/* Shared memory. */
bool submitted[2];              /* some slot of client c is SUBMITTED and its tail moved */
byte bell[2];
bool awake = true;

byte served[2], posted[2];
bool attached[2], gone[2], mapped[2] = true;

/* The kernel. */
byte armed[2];                  /* ring: 0 no operation, 1 submitted and waiting */
bool fired[2];                  /* ring: a completion stands in the queue */
bool event;                     /* eventfd */
bool manager_dies;
byte deaths;

#ifdef THREAD
bool locked, asleep, knows[2];  /* the group's lock; the thread sleeps; words it sleeps on */
bool member[2];                 /* under the lock: word[], seen[], control */
byte seen[2], control;
#define WAKE(c) if :: asleep && knows[c] -> asleep = false :: else fi
#else
#define WAKE(c) if :: armed[c] == 1 -> armed[c] = 0; fired[c] = true :: else fi
#endif

/* shm/ring.c cnre_ring_post, cnre_ring_bell. */
proctype client(byte c)
{
	byte n;
	bool is_awake;

	do
	:: n < POSTS ->
#ifdef M_NOFENCECLIENT
		is_awake = awake;
		atomic { submitted[c] = true; posted[c]++ };
#else
		atomic { submitted[c] = true; posted[c]++ };    /* then [Q7] */
		is_awake = awake;
#endif
		if
		:: !is_awake ->
#ifndef M_CONSTANT
			bell[c]++;
#endif
			atomic { WAKE(c) }                      /* cnre_futex_wake_all */
		:: else
		fi;
		is_awake = false;
		served[c] == posted[c];                         /* its answer: no time-out */
		n++
	:: n == POSTS -> break
	od;
	gone[c] = true
}

inline look()
{
	d_step {
		got = false;
		if :: submitted[0] -> submitted[0] = false; served[0] = posted[0]; got = true :: else fi
	};
	d_step {
		if :: submitted[1] -> submitted[1] = false; served[1] = posted[1]; got = true :: else fi
	}
}

#ifdef THREAD
/* manager/bell_thread.c stir: called under the lock. */
#ifdef M_NOSTIR
#define STIR skip
#else
#define STIR atomic { control++; asleep = false }
#endif

inline add_bell(c)
{
	atomic { !locked -> locked = true };
	atomic { member[c] = true; seen[c] = 0 };
	STIR;
	locked = false
}

inline remove_bell(c)
{
	atomic { !locked -> locked = true };
	member[c] = false;
	STIR;
	locked = false
}

#ifdef M_NOSEEN
#define RANG(i) skip
#else
#define RANG(i) rang = (rang || value[i] != seen[i])
#endif

/* listen_group, look, sleep_on. */
active proctype thread()
{
	byte value[2], value_control;
	bool rang, lists[2];

	do
	:: atomic { !locked -> locked = true; rang = false; lists[0] = false; lists[1] = false };
		value_control = control;                        /* [B5] */
#ifdef M_UNLOCKED
		locked = false;
#endif
		if
		:: member[0] -> atomic { assert(mapped[0]); lists[0] = true; value[0] = bell[0]; RANG(0); seen[0] = value[0] }
		:: else
		fi;
		if
		:: member[1] -> atomic { assert(mapped[1]); lists[1] = true; value[1] = bell[1]; RANG(1); seen[1] = value[1] }
		:: else
		fi;
#ifndef M_UNLOCKED
		locked = false;
#endif
		if
		:: rang -> event = true
		:: else ->
#ifdef M_WAITFRESH
			atomic { value[0] = bell[0]; value[1] = bell[1] };
#endif
			/* futex_waitv compares every word and enqueues in one step; an unmapped one ends it with EFAULT */
			atomic {
				if
				:: control == value_control && (!lists[0] || (mapped[0] && bell[0] == value[0])) &&
				   (!lists[1] || (mapped[1] && bell[1] == value[1])) ->
					asleep = true;
					knows[0] = lists[0];
					knows[1] = lists[1]
				:: else
				fi
			};
end:			!asleep;
			atomic { value[0] = 0; value[1] = 0; knows[0] = false; knows[1] = false }
		fi
	od
}
#endif

#ifdef M_NOREARM
bool once[2];
#define MAY_ARM(c) (!once[c])
#define NOTE_ARMED(c) once[c] = true
#else
#define MAY_ARM(c) true
#define NOTE_ARMED(c) skip
#endif

/* manager/bell.c arm: the value now, submitted when the ring is entered; the kernel compares then. */
#define LOAD_BELL(c) if :: attached[c] && armed[c] == 0 && !fired[c] && !known[c] && MAY_ARM(c) -> value[c] = bell[c]; known[c] = true; NOTE_ARMED(c) :: else fi
#define SUBMIT(c) if \
	:: known[c] && bell[c] == value[c] -> armed[c] = 1; known[c] = false; value[c] = 0 \
	:: known[c] && bell[c] != value[c] -> fired[c] = true; known[c] = false; value[c] = 0 \
	:: !known[c] \
	fi

active proctype manager()
{
	bool got, known[2];
	byte value[2];
restart:
	{
end0:		do
		:: true ->
			/* a turn: what fired, new sessions, ends of sessions, channels */
#ifdef THREAD
			event = false;
#endif
#ifndef THREAD
			atomic { fired[0] = false; fired[1] = false };
#endif
			if
			:: !attached[0] ->
				attached[0] = true;
				run client(0);
#ifdef THREAD
				add_bell(0)
#endif
			:: attached[0] && !attached[1] && served[0] > 0 ->
				attached[1] = true;
				run client(1);
#ifdef THREAD
				add_bell(1)
#endif
			:: else
			fi;
#ifdef THREAD
			if
			:: gone[0] && member[0] -> remove_bell(0); mapped[0] = false
			:: gone[1] && member[1] -> remove_bell(1); mapped[1] = false
			:: else
			fi;
#endif
			look();
			if
			:: got -> got = false
			:: else ->
#ifndef THREAD
#ifndef M_ARMLATE
#ifdef M_UNARMED
				atomic { LOAD_BELL(0) };
#else
				atomic { LOAD_BELL(0) };
				atomic { LOAD_BELL(1) };
#endif
#endif
#endif
#ifdef M_NOFENCEMANAGER
				look();
				awake = false;
#else
				awake = false;                  /* [B3], then [B2] */
#ifndef M_NOLOOK
				look();                         /* channel_any_pending */
#endif
#endif
#ifdef M_ARMLATE
				atomic { LOAD_BELL(0) };
				atomic { LOAD_BELL(1) };
#endif
#ifdef M_EVENTLATE
				event = false;
#endif
				if
				:: got
				:: else ->
#ifdef THREAD
end1:					event || (gone[0] && member[0]) || (gone[1] && member[1]) || (!attached[1] && served[0] > 0)
#else
					atomic { SUBMIT(0) };
					atomic { SUBMIT(1) };
end1:					fired[0] || fired[1] || (!attached[1] && served[0] > 0)
#endif
				fi;
				got = false;
				awake = true                    /* [B4] */
			fi
		od
	} unless { manager_dies };
	/* The ring and what was armed in it go with the process. */
	atomic {
		manager_dies = false; got = false; armed[0] = 0; armed[1] = 0; fired[0] = false; fired[1] = false;
		known[0] = false; known[1] = false; value[0] = 0; value[1] = 0;
		goto restart
	}
}

active proctype killer()
{
end:	do
	:: atomic { deaths < DEATHS && !manager_dies && attached[1] -> deaths++; manager_dies = true }
	od
}
