/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start on demand and idle exit: never two managers that clients are attached to, a serving manager is found at its path,
 * and a client that comes while a manager leaves, dies or starts waits for nothing that will not come (rule R30).
 *
 * Two clients, up to MANAGERS processes that they start, one SIGKILL, one succession by the keeper. The lock file is an inode behind a name; flock belongs
 * to the inode and ends with the process. A client that finds nobody starts a manager, STARTS times at most, and waits as long
 * as its own is starting or somebody holds the lock; connection refused, no socket and an end of file before the first
 * answer all mean "start over". Idle exit takes no time here, so a client may see all that it started leave again.
 *
 * good   -                    as in client/session.c and manager/listener.c
 * mutant M_NOLOCK assert      nobody takes the lock
 * mutant M_UNLINKLOCK assert  the lock file is removed at exit: two managers lock two inodes of one name
 * mutant M_UNLINKLATE assert  the socket is removed after the lock was given back, without asking whose it is
 * mutant M_EOFERROR assert    an end of file before the first answer is an error
 * mutant M_REFUSEDERROR assert   a socket without a listener is an error
 * mutant M_STALE stuck        a socket that a killed manager left is not removed before bind
 * mutant M_LEAVEBUSY assert   a manager leaves although a session began after its look
 * mutant M_NOREBIND assert    a successor serves without binding the path that its predecessor unlinked
 */
#define MANAGERS 3
#define STARTS 2                        /* of one client; 3 in the code */
#define NOBODY 0
#define INODES (MANAGERS + 1)

mtype = { NOTHING, PENDING, WELCOME, ENDED };

/* The file system: what the names lead to. */
byte path = NOBODY;                     /* whose socket the path is, perhaps a dead one's */
byte lock_name = 0;                     /* the inode behind NAME.lock */
byte lock_of[INODES] = NOBODY;          /* who holds it */
byte inodes = 1;

/* The kernel. */
bool listening[INODES], dead[INODES], left[INODES];
byte peer[2] = NOBODY;
mtype connection[2] = NOTHING;
byte session[2] = NOBODY;               /* a client is attached to this manager */
byte managers, kills, successions;

inline drop_pending(i)
{
	if :: peer[0] == i && connection[0] == PENDING -> connection[0] = ENDED :: else fi;
	if :: peer[1] == i && connection[1] == PENDING -> connection[1] = ENDED :: else fi
}

inline hang_up(i)
{
	drop_pending(i);
	if :: lock_of[0] == i -> lock_of[0] = NOBODY :: else fi;
	if :: lock_of[1] == i -> lock_of[1] = NOBODY :: else fi;
	if :: lock_of[2] == i -> lock_of[2] = NOBODY :: else fi;
	if :: lock_of[3] == i -> lock_of[3] = NOBODY :: else fi;
	listening[i] = false
}

#define HAS(c) (peer[c] == me && connection[c] != ENDED && connection[c] != NOTHING)
#define ANSWER(c) :: atomic { peer[c] == me && connection[c] == PENDING -> connection[c] = WELCOME; session[c] = me }

/* manager/socket_path.c take_lock, bind_path; manager/listener.c check_idle, leave. */
proctype manager(byte me)
{
	byte inode;
	{
		inode = lock_name;                                      /* open */
#ifndef M_NOLOCK
		if
		:: atomic { lock_of[inode] == NOBODY -> lock_of[inode] = me }
		:: lock_of[inode] != NOBODY -> goto out                 /* EBUSY: it leaves */
		fi;
#endif
#ifdef M_STALE
		path == NOBODY;
#else
		path = NOBODY;                                          /* unlink: stale, we hold the lock */
#endif
		path = me;                                              /* bind: connect is refused until listen */
		listening[me] = true;
serve:		do
		:: assert(path == me)                                   /* who serves is found */;
			if
			:: true
			ANSWER(0)
			ANSWER(1)
			fi
		:: session[0] != me && session[1] != me ->              /* is_idle */
#ifdef M_LEAVEBUSY
			if
			ANSWER(0)
			ANSWER(1)
			:: true
			fi;
#endif
			break
		od;
		/* leave, listener_close: no one is accepted any more */
#ifndef M_UNLINKLATE
		path = NOBODY;
#endif
		/* Killed here, where the keeper has socket and lock: the successor is the same to everybody else, and binds anew. */
		if
		:: successions < 1 ->
			successions++;
#ifndef M_NOREBIND
			path = me;
			atomic { drop_pending(me) };                    /* closes the former socket */
#endif
			goto serve
		:: true
		fi;
#ifdef M_UNLINKLOCK
		atomic { lock_name = inodes; inodes++ };                /* unlink: the next open makes a new one */
#endif
		atomic { left[me] = true; hang_up(me) };                /* closes the socket and the lock */
#ifdef M_UNLINKLATE
		path = NOBODY;
#endif
#ifdef M_LEAVEBUSY
		assert(session[0] != me && session[1] != me)
#endif
	} unless { dead[me] };
out:	left[me] = true
}

/* A session whose manager died is over; the client keeps what it has mapped. */
inline lost(i)
{
	if :: session[0] == i -> session[0] = NOBODY :: else fi;
	if :: session[1] == i -> session[1] = NOBODY :: else fi
}

active proctype killer()
{
end:	do
	:: atomic { kills < 1 && managers >= 1 && !dead[1] && !left[1] -> kills++; dead[1] = true; hang_up(1); lost(1) }
	:: atomic { kills < 1 && managers >= 2 && !dead[2] && !left[2] -> kills++; dead[2] = true; hang_up(2); lost(2) }
	od
}

/* client/session.c cnre_session_open. */
proctype client(byte c)
{
	byte mine = NOBODY, starts, found;

again:	found = path;
	if
	:: found != NOBODY ->
		atomic {
			if
			:: listening[found] -> peer[c] = found; connection[c] = PENDING
			:: else -> found = NOBODY
#ifdef M_REFUSEDERROR
				; assert(false)
#endif
			fi
		}
	:: else
	fi;
	if
	:: found != NOBODY ->
		connection[c] == WELCOME || connection[c] == ENDED;
		if
		:: connection[c] == WELCOME -> goto attached
		:: else ->
#ifdef M_EOFERROR
			assert(false);
#endif
			atomic { peer[c] = NOBODY; connection[c] = NOTHING };
			found = NOBODY
		fi
	:: else
	fi;
	/* start_if_needed: nobody there */
	if
	:: mine != NOBODY && !left[mine] && !dead[mine] ->      /* ours is on its way: look again when something changed */
		path != NOBODY || left[mine] || dead[mine];
		goto again
	:: (mine == NOBODY || left[mine] || dead[mine]) && mine != NOBODY && lock_of[lock_name] != NOBODY ->    /* another's */
		path != NOBODY || lock_of[lock_name] == NOBODY;
		goto again
	:: else ->
		atomic {
			if
			:: starts < STARTS && managers < MANAGERS ->
				starts++;
				managers++;
				mine = managers;
				run manager(mine)
			:: starts < STARTS && managers == MANAGERS -> goto over         /* the model is too small to go on */
			:: starts == STARTS -> goto over                                /* -ECONNREFUSED: all of them left */
			fi
		};
		goto again
	fi;
attached:
	/* never two that clients are attached to */
	assert(session[0] == NOBODY || session[1] == NOBODY || session[0] == session[1]);
	atomic { session[c] = NOBODY; peer[c] = NOBODY; connection[c] = NOTHING };      /* cnre_detach */
over:	skip
}

init { atomic { run client(0); run client(1) } }
