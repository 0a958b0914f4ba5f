/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late DMA: READY always means the object's own bytes, although a read that was submitted lands at any later time, also
 * after its manager was killed (rules R2, R16, R20-R23).
 *
 * Two objects, two slabs; each read has CHUNKS chunks, which the kernel lands one by one when it likes. A read may fail by one
 * chunk while others are still under way. In this release the pool ends with its manager, so only the part within one
 * incarnation runs; adoption with quarantine and fence is the design that the state segment was made for.
 *
 * good   -                    adoption: quarantine in the state segment until the fence, two deaths
 * good   -DPUNCH              adoption: the slab gets new pages, the old reads keep the old ones
 * good   -DINPLACE            adoption: the same bytes again into the same slab, bound to the object until the fence
 * mutant M_GIVEEARLY assert   a failed read gives its slab back while other chunks of it are under way
 * mutant M_SUBMITFIRST assert the read is submitted before place and LOADING are stored
 * mutant M_REUSE assert       adoption takes the slab of a LOADING object for free
 * mutant M_PRIVATE assert     the quarantine is in private memory; the second death forgets it
 * mutant M_LATEQUARANTINE assert   the directory is changed before the quarantine is in the state segment
 * mutant M_LATEFREE assert    a read that is given up leaves its slab free
 * mutant M_LATEAFTER assert   the entry changes before the slab is remembered in the state segment
 * mutant M_LATEPRIVATE assert the slab is remembered in private memory only
 * mutant M_LATESAME assert    the object is loaded anew into the same slab, beneath the read that was given up
 * mutant M_UNBOUND assert -DINPLACE   reload in place without binding the slab until the fence
 * mutant M_TRANSFORM assert -DINPLACE   reload in place, and the parts are then moved within the slab
 */
#define DEATHS 2
#define CHUNKS 2
#define GARBAGE 2
#define NOWHERE 2
#define PLAIN(o) (o)
#ifdef M_TRANSFORM
#define FINAL(o) ((o) + 4)              /* after prepare_slab */
#else
#define FINAL(o) PLAIN(o)
#endif

mtype = { ABSENT, LOADING, READY };

/* Directory, pool, state segment. */
mtype state[2] = ABSENT;
byte place[2] = NOWHERE;
byte content[2] = GARBAGE;
bool quarantine[2];                     /* until the fence of the incarnation that read into it */
bool late[2];                           /* likewise, by fence_remember: until its own reads are over */

/* The kernel: chunks under way, by slab * 2 + object; of this incarnation and of dead ones. */
byte mine[4], dead[4];
bool manager_dies;
byte deaths, failures, stalls;

#define FLYING(s) (mine[(s) * 2] + mine[(s) * 2 + 1] + dead[(s) * 2] + dead[(s) * 2 + 1])
#define OLD(s) (dead[(s) * 2] + dead[(s) * 2 + 1])
#define IS_TRUE(o) (state[o] != READY || content[place[o]] == FINAL(o))
#define USED(s) ((state[0] != ABSENT && place[0] == (s)) || (state[1] != ABSENT && place[1] == (s)))

#define LANDS(which, i, s, o) :: atomic { which[i] > 0 -> which[i]--; content[s] = PLAIN(o) }

active proctype kernel()
{
end:	do
	LANDS(mine, 0, 0, 0) LANDS(mine, 1, 0, 1) LANDS(mine, 2, 1, 0) LANDS(mine, 3, 1, 1)
	LANDS(dead, 0, 0, 0) LANDS(dead, 1, 0, 1) LANDS(dead, 2, 1, 0) LANDS(dead, 3, 1, 1)
	od
}

active proctype judge()
{
end:	atomic { !IS_TRUE(0) || !IS_TRUE(1) -> assert(false) }
}

active proctype killer()
{
end:	do
	:: atomic { deaths < DEATHS && !manager_dies -> deaths++; manager_dies = true }
	od
}

/* load_late.c give_up, move. */
inline give_up(o, s)
{
#if defined(M_LATEFREE)
	state[o] = ABSENT
#elif defined(M_LATEAFTER)
	state[o] = ABSENT;
	late[s] = true
#elif defined(M_LATEPRIVATE)
	private[s] = true;
	state[o] = ABSENT
#elif defined(M_LATESAME)
	content[s] = PLAIN(o);
	state[o] = READY
#else
	late[s] = true;
	state[o] = ABSENT
#endif
}

/* loader_submit ... finish_if_over: done is called when no chunk is under way any more, failed or not. */
inline read(o, s)
{
	mine[s * 2 + o] = mine[s * 2 + o] + CHUNKS;
	if
	:: mine[s * 2 + o] == 0 ->
#ifdef M_TRANSFORM
		content[s] = FINAL(o);
#endif
		state[o] = READY
#ifdef M_GIVEEARLY
	:: atomic { failures < 1 && mine[s * 2 + o] < CHUNKS -> failures++; state[o] = ABSENT }
#else
	:: atomic { failures < 1 && mine[s * 2 + o] == 0 -> failures++; state[o] = ABSENT }
#endif
	:: atomic { stalls < 1 && mine[s * 2 + o] > 0 -> stalls++ };
		give_up(o, s)
	fi
}

inline adopt(o)
{
	if
	:: state[o] == LOADING ->
#if defined(M_REUSE)
		state[o] = ABSENT
#elif defined(M_PRIVATE)
		private[place[o]] = true;
		state[o] = ABSENT
#elif defined(M_LATEQUARANTINE)
		state[o] = ABSENT;
		quarantine[place[o]] = true
#elif defined(PUNCH)
		atomic { content[place[o]] = GARBAGE; dead[place[o] * 2] = 0; dead[place[o] * 2 + 1] = 0 };
		state[o] = ABSENT
#elif defined(INPLACE)
#ifndef M_UNBOUND
		quarantine[place[o]] = true;
#endif
		if
		:: place[o] == 0 -> read(o, 0)
		:: place[o] == 1 -> read(o, 1)
		fi
#else
		quarantine[place[o]] = true;            /* first, so that no death in between forgets it */
		state[o] = ABSENT
#endif
	:: else
	fi
}

/* begin_load, mark_loading: place, LOADING, submit. */
inline begin(o, s)
{
#ifdef M_SUBMITFIRST
	mine[s * 2 + o] = mine[s * 2 + o] + CHUNKS;
	place[o] = s;
	state[o] = LOADING;
	mine[s * 2 + o] == 0;
	state[o] = READY
#else
	place[o] = s;
	state[o] = LOADING;
	read(o, s)
#endif
}
#define BEGIN(o, s) :: state[o] == ABSENT && !USED(s) && !quarantine[s] && !late[s] && !private[s] -> begin(o, s)

active proctype manager()
{
	bool private[2];
restart:
	{
		adopt(0);
		adopt(1);
end:		do
		/* the fence: nothing of a dead incarnation can arrive any more */
		:: atomic { quarantine[0] && OLD(0) == 0 -> quarantine[0] = false }
		:: atomic { quarantine[1] && OLD(1) == 0 -> quarantine[1] = false }
		:: atomic { private[0] && FLYING(0) == 0 -> private[0] = false }
		:: atomic { private[1] && FLYING(1) == 0 -> private[1] = false }
		/* load_end_late, or the fence of the incarnation that gave it up */
		:: atomic { late[0] && FLYING(0) == 0 -> late[0] = false }
		:: atomic { late[1] && FLYING(1) == 0 -> late[1] = false }
		:: state[0] == READY && !quarantine[place[0]] -> state[0] = ABSENT
		:: state[1] == READY && !quarantine[place[1]] -> state[1] = ABSENT
		BEGIN(0, 0) BEGIN(0, 1) BEGIN(1, 0) BEGIN(1, 1)
		od
	} unless { manager_dies };
	atomic {
		dead[0] = dead[0] + mine[0]; dead[1] = dead[1] + mine[1]; dead[2] = dead[2] + mine[2]; dead[3] = dead[3] + mine[3];
		mine[0] = 0; mine[1] = 0; mine[2] = 0; mine[3] = 0;
		private[0] = false; private[1] = false; manager_dies = false;
		goto restart
	}
}
