/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One packet with descriptors over a Unix socket: the sendmsg and recvmsg that wire.h (clients) and the manager's
 * descriptor store have in common. It knows no message.
 */
#ifndef CNRE_SHM_PACKET_H
#define CNRE_SHM_PACKET_H

#include <stddef.h>

#define CNRE_PACKET_FDS_MAX 128u          /* descriptors beside one packet; the kernel's own bound is 253 */

/* Never raises SIGPIPE; waits only if the socket blocks. 0, -EINVAL (too many descriptors), -EAGAIN, -EPIPE, … */
int cnre_packet_send(int socket, const void *bytes, size_t count, const int *fds, size_t fd_count);

/*
 * At most `room` bytes and `fd_room` descriptors (CNRE_PACKET_FDS_MAX at most); descriptors are CLOEXEC and the
 * caller's, and more than fit are closed. fds NULL: none is ever installed.
 * Returns the bytes, 0 at end of file, or -errno; *ret_is_cut: some of the packet or its descriptors did not fit.
 */
int cnre_packet_receive(int socket, void *buffer, size_t room, int *fds, size_t fd_room, size_t *ret_fd_count,
			int *ret_is_cut);

#endif
