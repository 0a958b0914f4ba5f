/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor-store protocol, as systemd speaks it: datagrams of NAME=VALUE lines with descriptors beside them
 * (FDSTORE=1, FDNAME=, FDPOLL=0, FDSTOREREMOVE=1, BARRIER=1, READY=1, STOPPING=1). The manager speaks it to whoever keeps
 * its descriptors: systemd, or the keeper (whose socket is SOCK_SEQPACKET, so that each side sees the other end). Pure parsing and one send; used by store.c and keeper.c.
 */
#ifndef CNRE_MANAGER_KEEP_WIRE_H
#define CNRE_MANAGER_KEEP_WIRE_H

#include <stddef.h>

#define KEEP_TEXT_MAX 512u
#define KEEP_FDS_MAX 16u                  /* descriptors in one datagram */
#define KEEP_NAME_BYTES 25u               /* R26: names of at most 24 bytes */

/*
 * The next manager gets all names in one string of its environment, LISTEN_FDNAMES, and the kernel takes none longer than
 * 32 pages (MAX_ARG_STRLEN). Each name counts with the byte behind it.
 */
#define KEEP_NAMES_BYTES_MAX (32u * 4096u - sizeof "LISTEN_FDNAMES=")

/* What a datagram asked for. */
struct keep_message {
	int ready, stopping, store, remove, barrier;
	char name[KEEP_NAME_BYTES];       /* FDNAME; empty: none */
};

/* Reads the lines of one datagram; unknown ones are passed over. 0, or -EBADMSG (a name that is too long or odd). */
int keep_parse(const char *text, size_t bytes, struct keep_message *ret_message);

/* Sends text and descriptors over a connected datagram socket. 0 or -errno. */
int keep_send(int socket, const char *text, const int *fds, size_t fd_count);

/* Receives one datagram; descriptors are CLOEXEC and the caller's. Bytes, 0 at end of file, or -errno. */
int keep_receive(int socket, char text[KEEP_TEXT_MAX], int fds[KEEP_FDS_MAX], size_t *ret_fd_count);

#endif
