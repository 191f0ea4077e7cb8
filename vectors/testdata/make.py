import numpy as np, json, struct
from numpy.lib import format as F
from safetensors.numpy import save_file
v = (np.arange(5*4).reshape(5,4)-9)/8
ln = np.array([2,0,3])
def w(name,a,ver):
    with open(name,'wb') as f: F.write_array(f,a,version=ver)
w('v1_f2.npy', v.astype('<f2'), (1,0))
w('v2_f4.npy', v.astype('<f4'), (2,0))
w('v3_f8be.npy', v.astype('>f8'), (3,0))
w('scalar_f8.npy', np.float64(0.75).reshape(()), (1,0))
w('lengths_i2be.npy', ln.astype('>i2'), (1,0))
w('lengths_u8.npy', ln.astype('<u8'), (1,0))
w('mask_bool.npy', np.array([[1,1],[0,1],[0,0]],bool), (1,0))
w('fortran.npy', np.asfortranarray(v.astype('<f4')), (1,0))
w('object.npy', np.array([None,1],object), (1,0))
w('struct.npy', np.zeros(2,[('a','<f4'),('b','<i4')]), (1,0))
w('strings.npy', np.array(['a','bc','d']), (1,0))
np.savez('stored.npz', vectors=v.astype('f2'), lengths=ln)
np.savez_compressed('deflated.npz', docs=v.astype('f4'), doclens=ln.astype('i4'), ids=np.array([7,8,9]))
np.savez_compressed('string_ids.npz', docs=v.astype('f4'), doclens=ln.astype('i4'), ids=np.array(['x','y','z']))
save_file({'vectors':v.astype('f2'),'lengths':ln.astype('i4')},'ragged.safetensors',metadata={'made':'by safetensors'})
save_file({'embeddings':v[[0,1,4,2,3,3]].reshape(3,2,4).astype('f8'),'mask':np.array([[1,1],[0,1],[0,0]],'u1')},'padded.safetensors')
