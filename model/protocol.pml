/*
 * The protocol of plan, claim, stage, publish and in-doubt COMMIT; see docs/protocol-model.md.
 *
 * The words are those of the code. The order matters: attempts are processes 0 to 3.
 */
#include "guards.pml"
#include "ledger.pml"
#include "log.pml"
#include "attempt.pml"
#include "world.pml"
#ifdef RELOAD
#include "operator.pml"
#endif
