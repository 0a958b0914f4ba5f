/* SPDX-License-Identifier: Apache-2.0 */
/* What a user can do about an error of a forward pass. */
#ifndef ENGINE_ADVICE_H
#define ENGINE_ADVICE_H

const char *advice_for(int error);

#endif
