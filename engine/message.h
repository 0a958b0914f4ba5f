/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-line reasons. A function that can fail for reasons a user can mend takes a message buffer and fills it on
 * failure; only main.c prints. Not for errors that the number alone explains.
 */
#ifndef ENGINE_MESSAGE_H
#define ENGINE_MESSAGE_H

#define ENGINE_MESSAGE_BYTES 512

/* Writes the reason (cut to fit) and returns error, so that "return engine_fail(...)" reads well. */
int engine_fail(char message[ENGINE_MESSAGE_BYTES], int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
